"""The defaults of Kafka's schemas that kio's classes lack."""

import dataclasses
import functools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_origin, get_type_hints


@functools.cache
def find_defaults(kind: Any) -> dict[str, Any]:
    """The defaults of the fields for which kio has none, as Kafka's own classes have them.

    Kafka's schemas name only other defaults than these (MessageGenerator's `fieldDefault`).
    """
    hints = get_type_hints(kind)
    missing = dataclasses.MISSING
    without = (
        field for field in dataclasses.fields(kind) if field.default is field.default_factory is missing
    )
    nulls = _NULL_DEFAULTS.get(kind.__name__, ())
    return {
        field.name: None
        if field.name in nulls
        else _zero_value(hints[field.name], field.metadata.get("kafka_type"))
        for field in without
    }


def _zero_value(hint: Any, kafka_type: str | None) -> Any:
    # A nullable field is empty, not null: without a default in the schema, that is Kafka's.
    kinds = [each for each in get_args(hint) or (hint,) if each is not type(None)]
    if tuple in (get_origin(hint), *map(get_origin, kinds)):
        return ()
    if kafka_type is None:
        return kinds[0](**find_defaults(kinds[0]))
    if kafka_type == "error_code":
        return kinds[0](0)
    return _ZEROS.get(kafka_type, 0)


_ZEROS: Mapping[str, Any] = {
    "bool": False,
    "bytes": b"",
    "datetime_i64": datetime.fromtimestamp(0, UTC),
    "float64": 0.0,
    "records": None,
    "string": "",
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "uuid": None,  # kio's form of the UUID that is zero
}
"""The defaults by Kafka's types. That of all others, which are numbers, is 0."""


_TASKS = frozenset({"active_tasks", "standby_tasks", "warmup_tasks"})
_NULL_DEFAULTS: Mapping[str, frozenset[str]] = {
    "ConsumerGroupHeartbeatRequest": frozenset({"topic_partitions"}),
    "DescribeTopicPartitionsResponsePartition": frozenset({"eligible_leader_replicas", "last_known_elr"}),
    "ListPartitionReassignmentsRequest": frozenset({"topics"}),
    "ReassignablePartition": frozenset({"replicas"}),
    "StreamsGroupHeartbeatRequest": _TASKS | {"client_tags", "task_offsets", "task_end_offsets"},
    "StreamsGroupHeartbeatResponse": _TASKS | {"partitions_by_user_endpoint"},
    "Topology": frozenset({"subtopologies"}),
}
"""Arrays that are null by default, as Kafka's schemas say. kio leaves these defaults out."""
