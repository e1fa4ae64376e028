"""Maps the errors of librdkafka, kio and Python to koff's errors: what failed, why, and what to check.

Every call into confluent-kafka, and every use of a socket, is made within `map_foreign_errors`.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from koff.errors import Closed, ConfigError, ConnectError, Denied, KoffError, LogInRefused

MakeConnectError = Callable[[Sequence[KafkaError]], ConnectError]
"""Makes the error of a request that has failed, from the errors that name the cause (perhaps none)."""

FATAL_AT_START = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._SSL,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""A retry does not help after these errors: a caller that connects need not wait for its deadline."""

_CHECK_LOG_IN = (
    "check sasl.mechanism, sasl.username and KOFF_PROPERTY_SASL_PASSWORD, and that the user exists"
)
_CHECK_PROTOCOL = "check the port and --property security.protocol (plaintext, ssl, sasl_plaintext, sasl_ssl)"
_CHECK_ADDRESS = "check --brokers, that the broker runs and that its port is open from here"


def extract_kafka_error(error: BaseException | None) -> KafkaError | None:
    """The `KafkaError` that an exception of confluent-kafka carries, None if it carries none."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return error if isinstance(error, KafkaError) else None


@contextmanager
def map_foreign_errors(subject: str, make_error: MakeConnectError) -> Iterator[None]:
    """Raises every error that is not a `KoffError` as one, as `convert_foreign_error` does."""
    try:
        yield
    except KoffError:
        raise
    except Exception as error:
        raise convert_foreign_error(error, subject, make_error) from error


def start_thread(thread: threading.Thread, subject: str) -> None:
    """Starts the thread. Raises `ConnectError` if this machine allows no more threads."""
    with map_foreign_errors(subject, lambda errors: make_connect_error("", errors)):
        thread.start()


def convert_foreign_error(error: BaseException, subject: str, make_error: MakeConnectError) -> KoffError:
    """The `KoffError` for an error of a library. `subject` is what has failed, for example a request.

    `ConfigError` for an argument that the library refuses, `Closed` for a closed client, and otherwise a
    `ConnectError`; `make_error` makes that of errors of Kafka and of the network.
    """
    if isinstance(error, KoffError):
        return error
    kafka_error = extract_kafka_error(error)
    if kafka_error is not None:
        return make_error([kafka_error])
    if isinstance(error, KafkaException | TimeoutError | OSError):
        return make_error(convert_os_error(error))
    if isinstance(error, ValueError | TypeError | OverflowError):
        return ConfigError(f"{subject}: {error}; check the types and the size of the arguments")
    if isinstance(error, RuntimeError) and "closed" in str(error).lower():
        return Closed(f"{subject}: {error}")
    return ConnectError(f"{subject}: {describe_error(error)}; check this machine's memory and threads")


def convert_os_error(error: BaseException) -> list[KafkaError]:
    """The same error as librdkafka has it. [] if it only says that no response came in time."""
    # TimeoutError, gaierror and SSLError are subclasses of OSError.
    if isinstance(error, TimeoutError):
        return []
    code = KafkaError._TRANSPORT
    if isinstance(error, socket.gaierror):
        code = KafkaError._RESOLVE
    elif isinstance(error, ssl.SSLError):
        code = KafkaError._SSL
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = f"the broker's certificate is not trusted: {error.verify_message}"
    else:
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
    cause = re.sub(r"^\[[^\]]*\] | \(_ssl\.c:\d+\)$", "", cause)  # Python's and OpenSSL's tags
    return [KafkaError(code, cause)]


def describe_error(error: BaseException) -> str:
    """The error in a few words, for a longer text: the name of Kafka's error, or type and text."""
    kafka_error = extract_kafka_error(error)
    if kafka_error is not None:
        return kafka_error.name()
    if isinstance(error, KoffError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def make_connect_error(brokers: str, errors: Sequence[KafkaError], *, was_up: bool = False) -> ConnectError:
    """The `ConnectError` (one line) for a connection attempt to `brokers` that caused `errors`.

    The text has the error that ranks first in `_rank`. `was_up`: the cluster was reached before.
    """
    error = min(errors, key=_rank, default=None)
    if error is None:
        return ConnectError(f"cannot reach Kafka at {brokers}: no response in time; {_CHECK_ADDRESS}")
    code, cause = error.code(), _clean_text(error)

    # The broker was reached, but refused the log-in or the TLS handshake.
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return LogInRefused(f"Kafka at {brokers} refused the log-in: {cause}; {_CHECK_LOG_IN}")
    if code == KafkaError._SSL:
        return ConnectError(
            f"TLS with Kafka at {brokers} failed: {cause}; check ssl.ca.location, "
            + _CHECK_PROTOCOL.removeprefix("check ")
        )

    # The broker was not reached at all.
    if code == KafkaError._RESOLVE:
        return ConnectError(f"cannot find Kafka at {brokers}: {cause}; check the host name in --brokers")
    if code == KafkaError._ALL_BROKERS_DOWN and was_up:
        return ConnectError(f"cannot reach Kafka at {brokers}: every connection was lost; {_CHECK_ADDRESS}")

    # librdkafka has no error of its own for a connection that is closed at once (a wrong protocol) or that
    # gets no response in time, so ALL_BROKERS_DOWN alone may mean either.
    if code == KafkaError._ALL_BROKERS_DOWN:
        return ConnectError(
            f"cannot reach Kafka at {brokers}: every connection was closed or got no response in time; "
            f"{_CHECK_ADDRESS}, and {_CHECK_PROTOCOL.removeprefix('check the port and ')}"
        )

    # A wrong protocol has several texts: librdkafka itself names "security.protocol"; the other texts appear
    # when the broker (or a server that is no broker) closes a connection whose bytes it cannot parse.
    if re.search(r"security\.protocol|Disconnected|[Rr]eceive buffer|Invalid response", cause):
        return ConnectError(f"cannot speak Kafka's protocol with {brokers}: {cause}; {_CHECK_PROTOCOL}")
    return ConnectError(f"cannot reach Kafka at {brokers}: {cause}; {_CHECK_ADDRESS}")


def make_probe_error(brokers: str, cause: str) -> ConnectError:
    """The `ConnectError` (one line) for addresses of which none can be used, as `Probe` found out."""
    if "refuse" in cause:
        return ConnectError(f"cannot reach Kafka at {brokers}: {cause}; {_CHECK_ADDRESS}")
    return ConnectError(f"cannot speak Kafka's protocol with {brokers}: {cause}; {_CHECK_PROTOCOL}")


def make_denied_error(topic: str, brokers: str, operation: str) -> Denied:
    """The `Denied` (one line) for a topic on which this user lacks `operation` (READ, DESCRIBE, ...)."""
    if operation not in ("READ", "DESCRIBE"):
        return Denied(f"no permission to {operation} of {topic} at {brokers}: grant this user {operation}")
    return Denied(
        f"no permission to {operation.lower()} {topic} at {brokers}: grant this user READ and DESCRIBE on "
        f"topic {topic} (and DESCRIBE on the topics whose lag koff shall compute)"
    )


def _rank(error: KafkaError) -> int:
    """0 for an error that names the cause best. ALL_BROKERS_DOWN is only a consequence, so it ranks last."""
    if error.code() in FATAL_AT_START:
        return 0
    return {KafkaError._RESOLVE: 1, KafkaError._TRANSPORT: 2, KafkaError._ALL_BROKERS_DOWN: 9}.get(
        error.code(), 3
    )


def _clean_text(error: KafkaError) -> str:
    """librdkafka's text without its tags (thread, the broker's internal name, time in state)."""
    text = error.str() or error.name()
    text = re.sub(r"^\[[^\]]*\]: ", "", text)  # [thrd:...]:
    text = re.sub(r"^(?:sasl_|plain|ssl|plaintext|sasl)\S*://\S+: |^\S+/(?:bootstrap|\d+): ", "", text)
    return re.sub(r" \(after \d+ms in state [^)]*\)", "", text).strip().rstrip(".")
