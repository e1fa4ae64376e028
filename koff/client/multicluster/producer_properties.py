"""librdkafka's properties for the producers of a writer, and which of its errors are final."""

from typing import Any

from confluent_kafka import KafkaError

from koff.client.cluster_conf import ClusterConf
from koff.client.librdkafka import ONE_IN_FLIGHT
from koff.client.multicluster.conf import WriterConf
from koff.client.multicluster.stats import INTERVAL
from koff.errors import ConfigError

_RESERVED_PROPERTIES = (
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "message.timeout.ms",
    "delivery.timeout.ms",
)

TOPIC_ABSENT = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
_TOPIC_REFUSED = TOPIC_ABSENT | frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
MESSAGE_REFUSED = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
    }
)
_REFUSED = _TOPIC_REFUSED | MESSAGE_REFUSED
"""After these errors a message is certainly not in the log, and another try at the cluster cannot help."""


def is_refusal(error: KafkaError) -> bool:
    """Whether the cluster certainly did not write the message, and never will."""
    return error.code() in _REFUSED


def build_producer_properties(name: str, cluster: ClusterConf, conf: WriterConf) -> dict[str, Any]:
    """The properties of a producer for the cluster of that name. Raises `ConfigError`."""
    # The writer's guarantees depend on these properties.
    for reserved in _RESERVED_PROPERTIES:
        if reserved in cluster.properties:
            raise ConfigError(f"{reserved} is the writer's own: leave it out of the properties of {name}")
    timeout_ms = max(int(conf.write_timeout_s * 1000), 1)
    properties = cluster.librdkafka_properties(
        **{
            **INTERVAL,
            "linger.ms": conf.batch_timeout_s * 1000,
            "batch.num.messages": conf.batch_size,
            "batch.size": conf.batch_bytes,
            "compression.type": conf.compression.value,
            "queue.buffering.max.messages": 0,  # no limit: the writer limits messages in flight
            "socket.timeout.ms": max(timeout_ms, 1_000),
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 500,
            **ONE_IN_FLIGHT,
        }
    )
    return {**properties, "acks": "all", "enable.idempotence": True, "message.timeout.ms": timeout_ms}
