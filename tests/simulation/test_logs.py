"""The logs of the model do what a broker's do, and its truth remembers what was true when."""

import ast
from pathlib import Path

import pytest

from tests.simulation.cluster import OFFSETS, SHARE_STATE, PartitionLog, PlainLog
from tests.simulation.logs import LogRecord, Written, read_all
from tests.simulation.placement import kafka_hash, share_key
from tests.simulation.truth import Truth
from tests.unit.records.decoding import golden


def written(*keys: str, value: bytes | None = b"x") -> list[Written]:
    return [Written(key.encode(), value) for key in keys]


def keys(read: list[LogRecord]) -> str:
    return "".join(record.key.decode() for record in read)


MODEL = (
    "cluster",
    "coordinators",
    "encoding",
    "facts",
    "hostile",
    "lives",
    "logs",
    "placement",
    "quiet_cluster",
)


@pytest.mark.parametrize("module", [*MODEL, "truth", "../group_records"])
def test_the_model_takes_nothing_from_koff_but_its_record_formats(module):
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    imported = {
        f"{node.module}.{name.name}" if isinstance(node, ast.ImportFrom) else name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    others = {name for name in imported if name.startswith("tests.")}
    assert {name.split(".")[1] for name in imported if name.startswith("koff")} <= {"records"}
    assert {name.split(".")[2] for name in others if "group_records" not in name} <= {*MODEL, "truth"}


# Logs


def test_a_reader_gets_committed_records_only_and_stops_at_the_first_open_transaction():
    log = PartitionLog(0)
    log.append(written("a"), 0)
    log.append(written("b", "c"), 0, producer=1)
    log.append(written("d"), 0)
    log.append(written("e"), 0, producer=2)
    assert (log.stable, log.end) == (1, 5)
    assert (keys(log.read(0, 10)[0]), log.read(0, 10)[1]) == ("a", 1)
    log.end_transaction(1, 0, commit=False)
    assert (keys(log.read(0, 10)[0]), log.read(0, 10)[1]) == ("ad", 4)
    log.end_transaction(2, 0, commit=True)
    assert (keys(log.read(0, 10)[0]), log.read(0, 10)[1]) == ("ade", 7)  # past both control records
    assert keys(log.read(0, 2)[0]) == "ad"
    assert log.read(2, 1)[1] == 4


def test_compaction_keeps_the_last_record_of_each_key_and_drops_tombstones_after_their_retention():
    log = PartitionLog(0)
    log.append(written("a", "b", "a"), 0)
    log.append(written("b", value=None), 0)
    log.append(written("c"), 0, producer=1)
    log.end_transaction(1, 0, commit=False)
    log.append(written("v", "w", "x", "y", "z"), 0)  # the active segment
    log.compact(1_000, 500)
    assert keys(read_all(log)) == "abvwxyz"
    assert [record.offset for record in read_all(log)][:2] == [2, 3]
    log.compact(1_499, 500)
    assert keys(read_all(log)) == "abvwxyz"
    log.compact(1_500, 500)
    assert keys(read_all(log)) == "avwxyz"
    assert log.read(3, 10)[0][0].offset == 6  # a gap


def test_compaction_keeps_the_control_record_of_data_that_stays():
    log = PartitionLog(0)
    log.append(written("a"), 0, producer=1)
    log.end_transaction(1, 0, commit=True)
    log.append(written("v", "w", "x", "y", "z"), 0)
    log.compact(1_000, 500)
    log.compact(2_000, 500)
    log.truncate(6)  # finds out anew which transactions are open
    assert (log.open, keys(read_all(log))) == ({}, "avwxy")


def test_a_truncated_log_ends_earlier_and_opens_the_transactions_whose_end_it_lost():
    log = PartitionLog(0)
    log.append(written("a"), 0)
    log.append(written("b"), 0, producer=1)
    log.end_transaction(1, 0, commit=True)
    log.append(written("c"), 0)
    log.truncate(2)
    log.elect(1)
    assert (log.end, log.stable, log.generation, log.truncated_to) == (2, 1, 1, {1: 2})
    log.append(written("d"), 0)
    log.end_transaction(1, 0, commit=True)
    assert keys(read_all(log)) == "abd"


def test_a_reader_notices_a_truncation_by_the_leader_epoch_of_what_it_read_last():
    log = PartitionLog(0)
    log.append(written("a", "b", "c"), 0)
    log.elect(1)
    log.append(written("d"), 0)
    assert (log.epoch_end(0), log.epoch_end(1)) == (3, 4)
    log.truncate(2)
    log.elect(0)
    log.append(written("x", "y", "z"), 0)
    assert log.epoch == 2
    # The positions 3 and 4 were valid in epochs 0 and 1. The log of these epochs now ends at 2.
    assert (log.epoch_end(0), log.epoch_end(1), log.epoch_end(2)) == (2, 2, 5)


def test_the_offset_of_a_time_is_that_of_the_first_record_written_then_or_later():
    log = PlainLog(0)
    log.write(10, 1_000)
    log.write(5, 2_000)
    assert [log.offset_at_time(at) for at in (0, 1_000, 1_001, 2_000, 2_001)] == [0, 0, 10, 10, -1]
    log.trim(12)
    assert log.offset_at_time(0) == 12


# Truth


def test_truth_knows_when_records_were_written_also_those_that_are_lost():
    truth, log = Truth(), PlainLog(0)
    truth.set_log("t", 0, 0, log)
    log.write(10, 1_000)
    log.truncate(5)
    log.write(10, 2_000)
    assert truth.written_ms("t", 0, {4}, 10) == {1_000}
    assert truth.written_ms("t", 0, {5}, 10) == {1_000, 2_000}
    assert truth.written_ms("t", 0, {15}, 10) == {None}
    log.trim(12)
    truth.set_start("t", 0, 20, 12)
    assert truth.written_ms("t", 0, {4}, 30) == {1_000, 2_000, None}
    assert truth.written_ms("t", 0, {4}, 900) == {2_000, None}


def test_truth_knows_the_records_of_an_earlier_topic_for_a_while():
    truth, old, new = Truth(), PlainLog(0), PlainLog(0)
    truth.set_log("t", 0, 0, old)
    old.write(10, 1_000)
    truth.set_log("t", 0, 50, new)
    new.write(10, 60_000)
    assert truth.written_ms("t", 0, {4}, 60) == {1_000, 60_000}
    assert truth.written_ms("t", 0, {4}, 900) == {60_000}


def test_truth_has_all_values_of_a_time_span():
    truth = Truth()
    for at_s, end in ((1, 10), (2, 20), (3, 30)):
        truth.set_end("t", 0, at_s, end)
    truth.set_end("t", 0, 4, None)
    assert truth.ends("t", 0, 1.5, 2.5) == {10, 20}
    assert truth.ends("t", 0, 2.5, 2.6) == {20}
    assert truth.ends("t", 0, 2, 2) == {10, 20}  # both were true at that very moment
    assert truth.ends("t", 0, 0, 1.5) == {None, 10}
    assert truth.ends("t", 0, 3.5, 9) == {30, None}
    assert truth.ends("t", 1, 0, 9) == {None}


def test_a_negative_commit_counts_as_no_commit():
    truth = Truth()
    truth.set_committed(("g", "t", 0), 1, 5)
    truth.set_committed(("g", "t", 0), 2, -1)
    assert truth.committed("g", "t", 0, 1.5, 3) == {5, None}
    assert truth.rows() == {}


# Placement


def test_the_placement_hash_agrees_with_a_real_broker():
    cases = golden("golden")
    for case in cases:
        text = case["group"]
        if case["topic"] == SHARE_STATE:
            key = case["oracle_key"]["data"]
            text = share_key(key["groupId"], key["topicId"], key["partition"])
        assert kafka_hash(text) % 50 == case["partition"]
    assert {case["topic"] for case in cases} == {OFFSETS, SHARE_STATE}


def test_a_hash_without_an_absolute_value_counts_as_zero():
    assert kafka_hash("polygenelubricants") == 0  # its Java hash is -2**31
