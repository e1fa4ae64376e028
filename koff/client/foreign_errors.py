"""Maps the errors of librdkafka, kio and Python to koff's errors: what failed, why, and what to check.

Every call into confluent-kafka, and every use of a socket, is made within `map_foreign_errors`.
"""

from __future__ import annotations

import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from koff.errors import Closed, ConfigError, ConnectError, Denied, KoffError, LogInRefused, NoResponse

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

REFUSED, TLS, NOT_FOUND, TRANSPORT, ALL_DOWN = -169, -181, -193, -195, -187
"""librdkafka's codes: a refused log-in, TLS, a host name, the network, all brokers at once."""
_SASL_REFUSED, _CLUSTER_DENIED, _TOPIC_DENIED = 58, 31, 29
"""Kafka's codes."""


class Fault(NamedTuple):
    """An error of koff's own connections, with the methods of a `KafkaError`."""

    number: int
    text: str

    def code(self) -> int:
        """One of the codes above."""
        return self.number

    def str(self) -> str:
        """What has failed."""
        return self.text


if TYPE_CHECKING:
    Cause = KafkaError | Fault
    MakeConnectError = Callable[[Sequence[Cause]], ConnectError]
    """Makes the error of a request that has failed, from the errors that name the cause (perhaps none)."""

LOG_IN_REFUSED = frozenset({REFUSED, _SASL_REFUSED})
FATAL_AT_START = LOG_IN_REFUSED | {TLS, _CLUSTER_DENIED, _TOPIC_DENIED}
"""A retry does not help after these errors: a caller that connects need not wait for its deadline."""

_CHECK_LOG_IN = "check sasl.mechanism, sasl.username and sasl.password, and that the user exists"
_CHECK_PROTOCOL = (
    "check the port and the property security.protocol (plaintext, ssl, sasl_plaintext, sasl_ssl)"
)
_CHECK_ADDRESS = "check the address, that the broker runs and that its port is open from here"


def extract_kafka_error(error: BaseException | None) -> KafkaError | None:
    """The `KafkaError` that an exception of confluent-kafka carries, None if it carries none."""
    kafka = sys.modules.get("confluent_kafka")
    if kafka is None:  # nobody has imported it
        return None
    if isinstance(error, kafka.KafkaException) and error.args:
        error = error.args[0]
    return error if isinstance(error, kafka.KafkaError) else None


@contextmanager
def map_foreign_errors(subject: str, brokers: str = "") -> Iterator[None]:
    """Raises every error that is not a `KoffError` as one, as `convert_foreign_error` does, of `brokers`."""
    try:
        yield
    except KoffError:
        raise
    except Exception as error:
        raise convert_foreign_error(error, subject, partial(make_connect_error, brokers)) from error


def start_thread(thread: threading.Thread, subject: str) -> None:
    """Starts the thread. Raises `ConnectError` if this machine allows no more threads."""
    with map_foreign_errors(subject):
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
    if isinstance(error, OSError):
        return make_error(convert_os_error(error))
    if isinstance(error, ValueError | TypeError | OverflowError):
        return ConfigError(f"{subject}: {error}; check the types and the size of the arguments")
    if isinstance(error, RuntimeError) and "closed" in str(error).lower():
        return Closed(f"{subject}: {error}")
    return ConnectError(f"{subject}: {describe_error(error)}; check this machine's memory and threads")


def convert_os_error(error: OSError) -> list[Fault]:
    """The same error as librdkafka has it. [] if it only says that no response came in time."""
    # TimeoutError, gaierror and SSLError are subclasses of OSError.
    if isinstance(error, TimeoutError):
        return []
    code = TRANSPORT
    if isinstance(error, socket.gaierror):
        code = NOT_FOUND
    elif isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        code = TLS
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = f"the broker's certificate is not trusted: {error.verify_message}"
    elif isinstance(error, ssl.SSLEOFError):  # a proxy before a broker that is down does so, too
        cause = "Disconnected without the end of TLS"
    else:
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
    cause = re.sub(r"^\[[^\]]*\] | \(_ssl\.c:\d+\)$", "", cause)  # Python's and OpenSSL's tags
    return [Fault(code, cause)]


def describe_error(error: BaseException) -> str:
    """The error in a few words, for a longer text: Kafka's text of its error, or type and text."""
    kafka_error = extract_kafka_error(error)
    if kafka_error is not None:
        return kafka_error.str()
    if isinstance(error, KoffError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def make_connect_error(brokers: str, errors: Sequence[Cause]) -> ConnectError:
    """The `ConnectError` (one line) for `errors` of connections to `brokers`.

    The text has the error that ranks first in `_rank`.
    """
    error = min(errors, key=_rank, default=None)
    if error is None:
        return NoResponse(f"cannot reach Kafka at {brokers}: no response in time; {_CHECK_ADDRESS}")
    code, cause = error.code(), _clean_text(error)

    # The broker was reached, but refused the log-in or the TLS handshake.
    if code in LOG_IN_REFUSED:
        return LogInRefused(f"Kafka at {brokers} refused the log-in: {cause}; {_CHECK_LOG_IN}")
    if code == TLS:
        return LogInRefused(
            f"TLS with Kafka at {brokers} failed: {cause}; check ssl.ca.location, ssl.certificate.location, "
            + _CHECK_PROTOCOL.removeprefix("check ")
        )

    # The broker was not reached at all.
    if code == NOT_FOUND:
        return ConnectError(f"cannot find Kafka at {brokers}: {cause}; check the host name")
    if code == ALL_DOWN:
        return ConnectError(f"cannot reach Kafka at {brokers}: every connection was lost; {_CHECK_ADDRESS}")

    # A wrong protocol has several texts: librdkafka itself names "security.protocol"; the other texts appear
    # when the broker (or a server that is no broker) closes a connection whose bytes it cannot parse.
    if re.search(r"security\.protocol|Disconnected|[Rr]eceive buffer|Invalid response", cause):
        return ConnectError(f"cannot speak Kafka's protocol with {brokers}: {cause}; {_CHECK_PROTOCOL}")
    return ConnectError(f"cannot reach Kafka at {brokers}: {cause}; {_CHECK_ADDRESS}")


def make_denied_error(topic: str, brokers: str, operation: str) -> Denied:
    """The `Denied` (one line) for a topic on which this user lacks `operation` (READ, DESCRIBE, ...)."""
    if operation not in ("READ", "DESCRIBE"):
        return Denied(f"no permission to {operation} of {topic} at {brokers}: grant this user {operation}")
    return Denied(
        f"no permission to {operation.lower()} {topic} at {brokers}: grant this user READ and DESCRIBE on "
        f"topic {topic} (and DESCRIBE on the topics whose lag koff shall compute)"
    )


def _rank(error: Cause) -> int:
    """0 for an error that names the cause best. ALL_BROKERS_DOWN is only a consequence, so it ranks last."""
    if error.code() in FATAL_AT_START:
        return 0
    return {NOT_FOUND: 1, TRANSPORT: 2, ALL_DOWN: 9}.get(error.code(), 3)


def _clean_text(error: Cause) -> str:
    """librdkafka's text without its tags (thread, the broker's internal name, time in state)."""
    text = error.str() or f"error {error.code()}"
    text = re.sub(r"^\[[^\]]*\]: ", "", text)  # [thrd:...]:
    text = re.sub(r"^(?:sasl_|plain|ssl|plaintext|sasl)\S*://\S+: |^\S+/(?:bootstrap|\d+): ", "", text)
    return re.sub(r" \(after \d+ms in state [^)]*\)", "", text).strip().rstrip(".")
