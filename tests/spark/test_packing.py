"""Packed batches give back what was packed, and of the commits in them what matters is kept."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from koff.lag.window import WINDOW
from koff.spark.rows.decoding import COMMITS, SCHEMA
from koff.spark.rows.newest import STALE_MS, TICK_MS, coalesce_batches, derive_slot_updates, keep_newest
from koff.spark.rows.packing import (
    COLUMNS,
    COMMIT,
    COMMIT_ROWS,
    GROUP,
    PACKED,
    UNDECODED,
    pack_batches,
    pack_buckets,
    unpack_batches,
)
from tests.spark.test_decoding import EVERY, decode_batch, raw

Row = dict[str, Any]
USES = {"Undecodable": UNDECODED, "Unknown": UNDECODED} | dict.fromkeys(COMMITS, COMMIT)


def test_what_is_packed_is_what_is_unpacked_by_its_use() -> None:
    rows = decode_batch(raw(EVERY), "c")
    packed = pa.Table.from_batches(pack_batches([rows, rows.slice(3, 5)]), PACKED).to_pylist()
    assert {each["what"] for each in packed} == {COMMIT, GROUP, UNDECODED}
    given = rows.to_pylist() + rows.slice(3, 5).to_pylist()
    for what in (COMMIT, GROUP, UNDECODED):
        mine = [each for each in packed if each["what"] == what]
        batch = pa.RecordBatch.from_pylist([{"packed": each["packed"]} for each in mine], PACKED_ONLY)
        back = [row for each in unpack_batches([batch]) for row in each.to_pylist()]
        of_use = [row for row in given if USES.get(row["kind"], GROUP) == what]
        assert back == [{name: row[name] for name in COLUMNS[what]} for row in of_use]
        assert sum(each["records"] for each in mine) == len(back)
        times = {row["timestamp"].timestamp() * 1000 for row in back}
        assert {each["first_ms"] for each in mine} <= times


PACKED_ONLY = pa.schema([PACKED.field("packed")])

commits = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.none() | st.integers(-1, 3),
        st.sampled_from([0, 1, 400, 1000, 1000, 1000]),
    ),
    min_size=1,
    max_size=120,
)


@given(commits, st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_of_note_says_of_every_slot_what_all_commits_say(
    given_: list[tuple[str, int, int | None, int]], data: st.DataObject
) -> None:
    at_ms, rows = 0, []
    for offset, (group, partition, committed, later_ms) in enumerate(given_):
        at_ms += later_ms
        rows.append(row(group, partition, offset, committed, at_ms))
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=3))})
    parts = [batch(rows[a:b]) for a, b in itertools.pairwise(cuts)]
    kept = [each for part in parts for each in keep_newest(part).to_pylist()]
    assert current(kept) == current(rows)
    again = keep_newest(batch(kept)).to_pylist()
    assert current(again) == current(rows)
    assert len(again) <= len({(r["group"], r["partition"]) for r in rows}) * (WINDOW + 2)


@given(commits, st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2_000), st.integers(0, 5)), max_size=9))
@settings(max_examples=150, deadline=None)
def test_news_are_the_last_commit_and_the_last_seconds_with_the_lag_that_each_left(
    given_: list[tuple[str, int, int | None, int]], sampled: list[tuple[int, int, int]]
) -> None:
    at_ms, rows = 1_000_000, []
    for offset, (group, partition, committed, later_ms) in enumerate(given_):
        at_ms += later_ms
        rows.append(row(group, partition, offset, committed, at_ms))
    ends = [
        {**row("", partition, 0, end, 1_000_000 - 2 * STALE_MS + far * 1000), "group": None}
        for partition, far, end in {(each[0], each[1]): each for each in sampled}.values()
    ]
    found = {
        (each["group"], each["partition"]): each
        for each in derive_slot_updates(batch(rows), batch(ends)).to_pylist()
    }
    wanted = current(rows)
    assert found.keys() == wanted.keys()
    by_offset = {each["log_offset"]: each for each in rows}
    for slot, (last, cleared, recent) in wanted.items():
        each = found[slot]
        assert (each["log_offset"], each["cleared"]) == (last, cleared)
        assert (each["committed"], each["deleted"]) == (
            by_offset[last]["committed"],
            by_offset[last]["tombstone"],
        )
        assert (each["more"] or []) == [
            {
                "at_ms": micros(by_offset[offset]) // 1000 // TICK_MS * TICK_MS,
                "committed": by_offset[offset]["committed"],
                "lag": lag_left(by_offset[offset], ends),
            }
            for offset in reversed(recent)
        ]


def lag_left(commit: Row, ends: list[Row]) -> int | None:
    """By the end that was sampled last before the commit, if that was not long before."""
    before = [
        (each["timestamp"], each["committed"])
        for each in ends
        if each["partition"] == commit["partition"]
        and 0 <= commit["timestamp"] - each["timestamp"] <= STALE_MS * 1000
    ]
    return max(0, max(before)[1] - commit["committed"]) if before else None


def test_news_of_a_slot_in_two_homes_are_those_of_the_home_that_spoke_last() -> None:
    rows = [row("g", 0, 5, 50, 9_000), {**row("g", 0, 90, 10, 4_000), "offsets_partition": 8}]
    (one,) = derive_slot_updates(batch(rows), batch([])).to_pylist()
    assert (one["offsets_partition"], one["committed"], len(one["more"])) == (3, 50, 1)


@given(commits)
@settings(max_examples=50, deadline=None)
def test_buckets_hold_every_row_and_all_of_a_topics_partition(
    given_: list[tuple[str, int, int | None, int]],
) -> None:
    rows = batch([{**row(g, p, n, c, n), "topic": g * 3} for n, (g, p, c, _) in enumerate(given_)])
    homes = defaultdict(set)
    back = []
    for each in pack_buckets(rows.select(COMMIT_ROWS.names), 5).to_pylist():
        packed = pa.RecordBatch.from_pylist([{"packed": each["packed"]}], PACKED_ONLY)
        for part in unpack_batches([packed]):
            back += part.column("log_offset").to_pylist()
            for place in zip(
                part.column("topic").to_pylist(), part.column("partition").to_pylist(), strict=True
            ):
                homes[place].add(each["bucket"])
    assert sorted(back) == list(range(len(given_)))
    assert {len(buckets) for buckets in homes.values()} == {1}
    assert set().union(*homes.values()) <= set(range(5))


def test_chunks_hold_all_rows_in_their_order() -> None:
    parts = [batch([row("g", 0, offset, 1, offset)]) for offset in range(7)]
    (chunk,) = coalesce_batches(parts)
    assert chunk.column("log_offset").to_pylist() == list(range(7))
    assert list(coalesce_batches([])) == []


def row(group: str, partition: int, offset: int, committed: int | None, at_ms: int) -> Row:
    return {
        **dict.fromkeys(SCHEMA.names),
        "group": group,
        "topic": "t",
        "partition": partition,
        "offsets_partition": 3,
        "log_offset": offset,
        "timestamp": at_ms * 1000,
        "tombstone": committed is None,
        "committed": committed,
        "commit_timestamp": None if committed is None else at_ms * 1000,
    }


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def current(rows: list[Row]) -> dict[tuple[str, int], Any]:
    """Of each slot the last commit, and the last of the last seconds after its last deletion."""
    slots = defaultdict(list)
    for each in sorted(rows, key=lambda each: each["log_offset"]):
        slots[each["group"], each["partition"]].append(each)
    found = {}
    for slot, mine in slots.items():
        deletions = [each["log_offset"] for each in mine if each["tombstone"]]
        ticks: dict[int, Row] = {}
        for each in mine:
            alive = each["log_offset"] > max(deletions, default=-1) and (each["committed"] or 0) >= 0
            if alive and not each["tombstone"]:
                ticks[micros(each) // (TICK_MS * 1000)] = each
        recent = [each["log_offset"] for each in ticks.values()][-WINDOW:]
        found[slot] = (mine[-1]["log_offset"], max(deletions, default=None), recent)
    return found


def micros(each: Row) -> int:
    at = each["commit_timestamp"]
    return at if isinstance(at, int) else round(at.timestamp() * 1_000_000)
