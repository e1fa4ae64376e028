"""Kafka's and librdkafka's errors, said once in koff's words: who, why, and what to check."""

from __future__ import annotations

import re
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from koff.errors import ConnectError, Denied

FATAL_AT_START = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._SSL,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that another try will not mend: no use in waiting for the deadline."""

_AUTHENTICATION = (
    "check sasl.mechanism, sasl.username and KOFF_PROPERTY_SASL_PASSWORD, and that the user exists"
)
_PROTOCOL = "check the port and --property security.protocol (plaintext, ssl, sasl_plaintext, sasl_ssl)"
_REACH = "check --brokers, that the broker runs and that its port is open from here"


def kafka_error(failure: BaseException) -> KafkaError | None:
    """The `KafkaError` within an exception of confluent-kafka, if it is one."""
    if isinstance(failure, KafkaException) and failure.args and isinstance(failure.args[0], KafkaError):
        return failure.args[0]
    return failure if isinstance(failure, KafkaError) else None


def connect_error(brokers: str, seen: Sequence[KafkaError], *, was_up: bool = False) -> ConnectError:
    """The one line for an attempt to reach `brokers` during which the errors `seen` came up."""
    best = min(seen, key=_rank, default=None)
    if best is None:
        return ConnectError(f"cannot reach Kafka at {brokers}: no answer in time; {_REACH}")
    code, cause = best.code(), _cause(best)
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return Denied(f"Kafka at {brokers} refused the log-in: {cause}; {_AUTHENTICATION}")
    if code == KafkaError._SSL:
        return ConnectError(
            f"TLS with Kafka at {brokers} failed: {cause}; check ssl.ca.location and {_PROTOCOL[6:]}"
        )
    if code == KafkaError._RESOLVE:
        return ConnectError(f"cannot find Kafka at {brokers}: {cause}; check the host name in --brokers")
    if code == KafkaError._ALL_BROKERS_DOWN and was_up:
        return ConnectError(f"cannot reach Kafka at {brokers}: every connection was lost; {_REACH}")
    if code == KafkaError._ALL_BROKERS_DOWN:  # and no cause: refused or timed-out connections give theirs
        return ConnectError(
            f"no Kafka conversation with {brokers}: connections are closed at once; {_PROTOCOL}"
        )
    if re.search(r"security\.protocol|Disconnected|[Rr]eceive buffer|Invalid response", cause):
        return ConnectError(f"no Kafka conversation with {brokers}: {cause}; {_PROTOCOL}")
    return ConnectError(f"cannot reach Kafka at {brokers}: {cause}; {_REACH}")


def denied(topic: str, brokers: str, operation: str) -> Denied:
    """The one line for a topic that the user may not `operation` (READ or DESCRIBE)."""
    return Denied(
        f"no permission to {operation.lower()} {topic} at {brokers}: grant this user READ and DESCRIBE on "
        f"topic {topic} (and DESCRIBE on the topics whose lag it shall see)"
    )


def _rank(error: KafkaError) -> int:
    """Telling causes before mere consequences, of which "all brokers are down" says least."""
    if error.code() in FATAL_AT_START:
        return 0
    return {KafkaError._RESOLVE: 1, KafkaError._TRANSPORT: 2, KafkaError._ALL_BROKERS_DOWN: 9}.get(
        error.code(), 3
    )


def _cause(error: KafkaError) -> str:
    """librdkafka's text without its tags (thread, broker's internal name, time in state)."""
    text = error.str() or error.name()
    text = re.sub(r"^\[[^\]]*\]: ", "", text)
    text = re.sub(r"^(?:sasl_|plain|ssl|plaintext|sasl)\S*://\S+: |^\S+/(?:bootstrap|\d+): ", "", text)
    return re.sub(r" \(after \d+ms in state [^)]*\)", "", text).strip().rstrip(".")
