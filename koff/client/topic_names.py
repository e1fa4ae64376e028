"""Checks names of topics and numbers of partitions before librdkafka gets them.

confluent-kafka raises errors of its own for a wrong type or number. A text that has no UTF-8 form ends the
process (confluent-kafka 2.16.1 follows a null pointer).
"""

import re
from operator import index

from koff.client.errors import UnknownTopic
from koff.errors import ConfigError

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # Kafka's class Topic
_MAX_PARTITION = (1 << 31) - 1


def find_topic_fault(topic: object) -> str:
    """Why this cannot be the name of a topic; "" if it can."""
    if isinstance(topic, str) and _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return ""
    return f"{topic!r} cannot be the name of a topic: use 1 to 249 letters, digits, '.', '_' and '-'"


def check_partition(topic: object, partition: object = 0) -> None:
    """Raises `UnknownTopic` unless a topic and a partition of that name and number can exist."""
    if fault := find_topic_fault(topic):
        raise UnknownTopic(fault)
    try:
        is_possible = 0 <= index(partition) <= _MAX_PARTITION  # type: ignore[arg-type]  # that is the check
    except TypeError:
        is_possible = False
    if not is_possible:
        raise UnknownTopic(f"{topic} has no partition {partition!r}: partitions are numbered from 0")


def check_commit(topic: str, partition: int, offset: int) -> None:
    """Raises `UnknownTopic` as `check_partition` does, and `ConfigError` for an offset below 0.

    Kafka stores such an offset, and readers of the group cannot use it.
    """
    check_partition(topic, partition)
    if offset < 0:
        raise ConfigError(f"offset {offset} of {topic}/{partition} cannot be committed: use 0 or more")
