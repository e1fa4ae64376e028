"""What a stream remembers of the log: offsets, the topic's id, and the epochs of the leaders."""

from __future__ import annotations

from typing import Any

import pytest

from koff.client import OffsetSpec
from koff.spark.rows.decoding import DataLost
from koff.spark.rows.spans import Span
from koff.spark.source.kafka import KafkaOptions, OffsetsLog, StreamReader
from koff.spark.source.log_position import LogPosition


class Scripted(OffsetsLog):
    """A log whose ends a test sets."""

    latest = LogPosition({0: 5, 1: 0}, "first", {0: 1, 1: 1})

    def fetch_position(self, spec: OffsetSpec | int = OffsetSpec.LATEST) -> LogPosition:
        return (
            LogPosition(dict.fromkeys(self.latest.offsets, 0)) if spec == OffsetSpec.EARLIEST else self.latest
        )


def open_stream(**options: Any) -> tuple[StreamReader, Scripted]:
    reader = StreamReader(KafkaOptions.parse({"brokers": "a:1", "cluster": "c", **options}))
    log = reader._log = Scripted(reader._log.options)
    return reader, log


def test_a_position_is_the_same_after_json() -> None:
    position = LogPosition({0: 5, 12: 7}, "id", {0: 3})
    assert LogPosition.from_json(position.to_json()) == position


def test_a_batch_is_read_with_the_epochs_that_belong_to_its_start() -> None:
    reader, log = open_stream()
    start = reader.latestOffset()
    assert reader.partitions(reader.initialOffset(), start)[0].leader_epochs == {}
    log.latest = LogPosition({0: 9, 1: 4}, "first", {0: 2, 1: 2})
    end = reader.latestOffset()
    (task,) = reader.partitions(start, end)
    assert task.spans == [Span(0, 5, 9), Span(1, 0, 4)]
    assert task.leader_epochs == {(0, 5): 1, (1, 0): 1}
    assert LogPosition.from_json(end).leader_epochs == {0: 2, 1: 2}


def test_an_end_that_goes_back_keeps_the_offset_and_the_epoch_of_the_leader_that_had_it() -> None:
    reader, log = open_stream()
    reader.partitions(reader.initialOffset(), reader.latestOffset())
    log.latest = LogPosition({0: 3, 1: 1}, "first", {0: 2, 1: 2})
    assert LogPosition.from_json(reader.latestOffset()) == LogPosition({0: 5, 1: 1}, "first", {0: 1, 1: 2})


def test_a_topic_with_another_id_is_another_log() -> None:
    reader, log = open_stream()
    reader.partitions(reader.initialOffset(), reader.latestOffset())
    log.latest = LogPosition({0: 50, 1: 50}, "second", {0: 0, 1: 0})
    with pytest.raises(DataLost, match=r"created again \(its id was first, now it is second\)"):
        reader.latestOffset()
