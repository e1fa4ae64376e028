"""How many members a group should have: by what there is to do, and what members were seen to do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koff.lag.scaling import SPAN, Load, Scale, ScaleReason, Span, choose_members, find_spans

NAN = float("nan")


def load(lag: int = 0, per_s: float = 0.0, *, curable: int | None = None, **more: object) -> Load:
    """The group may be 100 s late."""
    of_curable = lag if curable is None else curable
    return Load(lag, of_curable, per_s, 100.0, **{"partitions": 12, **more})  # type: ignore[arg-type]


def seen(members: int, per_s: float, *, is_last: bool = True, is_saturated: bool = True) -> Span:
    return Span(members, per_s, is_saturated, is_last)


def choose(
    there: Load, members: int, *spans: Span, seconds: float = 300, member_per_s: float | None = None
) -> Scale:
    return choose_members(there, members, spans, seconds=seconds, member_per_s=member_per_s)


def test_nothing_to_do_needs_nobody():
    assert choose(load(), 3, seen(3, 300)) == Scale(0, ScaleReason.IDLE, 100)
    assert choose(load(per_s=1), 0).members == 1


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (load(1000, 10), ScaleReason.CAPACITY_UNKNOWN),
        (load(1000, curable=0), ScaleReason.NOT_CURABLE),
        (load(100_000, 10, is_rebalancing=True), ScaleReason.REBALANCING),
    ],
)
@pytest.mark.parametrize("members", [0, 1, 4])
def test_members_stay_where_their_number_does_not_follow_from_the_load(there, reason, members):
    spans = () if reason is ScaleReason.CAPACITY_UNKNOWN else (seen(4, 400),)
    found = choose(there, members, *spans)
    assert (found.members, found.reason) == (max(members, 1), reason)


@pytest.mark.parametrize(
    ("there", "members", "wanted"),
    [
        (load(39_999, 400), 4, 4),  # 400 a second do that within 100 s
        (load(50_000, 300), 4, 4),  # behind, but within that in 300 s: (50,000 + 90,000) / 400 s are 350
        (load(60_000, 400), 4, 6),  # 450 a second are needed, and five members are as slow as four
        (load(400_000, 0), 4, 8),  # 1,000 a second: ten, but not more than twice as many at once
        (load(400_000, 0), 7, 12),
        (load(9_000_000, 0), 12, 12),
    ],
)
def test_a_group_that_is_behind_gets_what_is_needed_in_time(there, members, wanted):
    assert choose(there, members, seen(members, 100.0 * members)).members == wanted


def test_the_owner_may_say_what_a_member_can_do():
    assert choose(load(400_000), 1, member_per_s=100) == Scale(12, ScaleReason.NEEDED, 100)
    assert choose(load(400_000), 0, seen(1, 5), member_per_s=100).members == 12


def test_a_record_that_is_late_is_enough_to_be_behind():
    there = load(1000, 450, is_late=True)
    assert choose(there, 4, seen(4, 400)).members == 6
    assert choose(there._replace(is_late=False), 4, seen(4, 400)).members == 4


def test_members_beyond_the_partitions_are_never_wanted():
    found = choose(load(9_000_000, 2000), 8, seen(8, 800))
    assert (found.members, found.reason) == (12, ScaleReason.ALL_PARTITIONS)
    assert choose(load(9_000_000, 2000, partitions=None), 80, seen(80, 800)).members == 160  # a share group


def test_no_member_has_more_partitions_than_it_can_do():
    keeps = [
        choose(load(0, 40.0 * busy), 12, seen(12, 600, is_saturated=False)).members for busy in range(1, 13)
    ]
    assert keeps == [1, 2, 3, 4, 6, 6, 12, 12, 12, 12, 12, 12]  # 50 a second each, with headroom 40


def test_members_leave_only_if_the_others_have_headroom():
    span = seen(3, 300, is_saturated=False)
    assert choose(load(0, 300), 3, span) == Scale(3, ScaleReason.KEEPS_UP, 100)
    assert choose(load(0, 161), 3, span).members == 3
    assert choose(load(0, 160), 3, span).members == 2


def test_members_that_bring_nothing_are_not_added_again():
    before = seen(4, 150, is_last=False)
    assert choose(load(400_000, 300), 8, before, seen(8, 155)) == Scale(8, ScaleReason.NO_GAIN, 19.375)
    assert choose(load(400_000, 300), 8, before, seen(8, 200)).members == 12
    # Fewer members that had nothing to do prove nothing.
    idle = seen(4, 150, is_last=False, is_saturated=False)
    assert choose(load(400_000, 300), 8, idle, seen(8, 155)).members == 12


def test_what_members_do_now_counts_more_than_what_they_did_before():
    before = seen(4, 400, is_last=False)
    assert choose(load(60_000, 300), 4, before, seen(4, 200)).member_per_s == 50
    assert choose(load(60_000, 300), 4, before, seen(4, 200, is_saturated=False)).member_per_s == 100
    assert choose(load(60_000, 300), 5, before, seen(4, 200)).member_per_s == 100  # there are others now


@given(
    st.integers(0, 10**7),
    st.floats(0, 10**5),
    st.integers(0, 40),
    st.integers(1, 30),
    st.floats(0.01, 10**4),
)
def test_a_larger_load_never_needs_fewer_members(lag, per_s, members, partitions, rate):
    def wanted(there: Load) -> int:
        return choose(there, members, member_per_s=rate).members

    small = load(lag, per_s, partitions=partitions)
    assert wanted(small) <= wanted(load(2 * lag, per_s, partitions=partitions))
    assert wanted(small) <= wanted(load(lag, 2 * per_s, partitions=partitions))
    assert wanted(small) <= max(members, partitions)


# --- Spans ----------------------------------------------------------------------------------------------


def spans_of(lag: list[float], consumed: list[float], members: list[int]) -> list[Span]:
    return find_spans(np.array(lag), np.array(consumed), members, 100.0)


def test_a_span_is_of_one_number_of_members():
    lag, consumed = [60_000.0] * 20, [1000.0] * 19 + [NAN]
    (*_, last) = found = spans_of(lag, consumed, [2] * 20)
    assert len(found) == 20 - SPAN
    assert last == Span(2, 1000, is_saturated=True, is_last=True)
    assert not any(span.is_last for span in found[:-1])
    assert {span.members for span in spans_of(lag, consumed, [2] * 10 + [-1] + [3] * 9)} == {2, 3}
    assert spans_of(lag, consumed, [2] * 5 + [3] * 5 + [2] * 5 + [3] * 5) == []
    assert spans_of(lag, consumed, [0] * 20) == []
    assert spans_of(lag, [NAN, *consumed[:-1]], [2] * 20)[-1].is_last


def test_a_group_with_little_lag_is_not_saturated():
    consumed = [1000.0] * 20
    assert not any(span.is_saturated for span in spans_of([49_000.0] * 20, consumed, [2] * 20))
    assert not spans_of([60_000.0] * 19 + [0.0], consumed, [2] * 20)[-1].is_saturated


def test_what_is_not_known_is_of_no_span():
    lag = [60_000.0] * 10 + [NAN] + [60_000.0] * 9
    assert len(spans_of(lag, [1000.0] * 20, [2] * 20)) == 3 + 2
    assert spans_of([NAN] * 20, [NAN] * 20, [2] * 20) == []
