"""The file of a plan: what was written is read again, and what was edited is noticed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from koff.client.cluster_conf import TopicPartition
from koff.client.offset_plan import Commit, OffsetPlan, PlannedOffset
from koff.errors import ConfigError
from koff.lag.resets import LogRange

AT = TopicPartition("orders", 0)
OFFSET = PlannedOffset(AT, "id-1", Commit(120, "café"), Commit(150), LogRange(100, 200), "why")
PLAN = OffsetPlan(
    "cluster-1",
    "it's a group",
    "offset=150",
    "2026-01-31T12:00:00Z",
    (
        OFFSET,
        replace(OFFSET, at=TopicPartition("orders", 1), before=None),
        replace(OFFSET, at=TopicPartition("orders", 2), after=None),
        replace(OFFSET, at=TopicPartition("orders", 3), after=OFFSET.before),
    ),
)


def test_what_was_written_is_read_again():
    assert OffsetPlan.parse_file(PLAN.format_file()) == PLAN


def test_a_file_that_was_only_indented_in_another_way_is_the_same_plan():
    compact = json.dumps(json.loads(PLAN.format_file()), sort_keys=True)
    assert OffsetPlan.parse_file(compact) == PLAN


@pytest.mark.parametrize(
    ("old", "new"),
    [("150", "151"), ("it's a group", "payments"), ("id-1", "id-2"), ('"partition": 1', '"partition": 4')],
)
def test_an_edited_file_is_refused(old, new):
    text = PLAN.format_file()
    assert old in text
    with pytest.raises(ConfigError, match="was changed after koff wrote it"):
        OffsetPlan.parse_file(text.replace(old, new))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "7", "[" * 100_000, '{"sha256": ""}', PLAN.format_file().replace("before", "b")]
)
def test_another_file_is_no_plan(text):
    with pytest.raises(ConfigError, match="is no plan"):
        OffsetPlan.parse_file(text)


def test_a_partition_without_a_commit_skips_nothing_that_is_known():
    without, deleted = PLAN.offsets[1:3]
    assert (without.skipped, without.read_again) == (None, None)
    assert (deleted.skipped, deleted.read_again) == (None, None)
    assert PLAN.sum_skipped() == 30
    assert PLAN.sum_read_again() == 0


def test_only_what_differs_is_written():
    assert [each.at.partition for each in PLAN.changes] == [0, 1, 2]
