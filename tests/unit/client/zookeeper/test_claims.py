"""How far the messages of a claim are processed, in whichever order they are. Needs no ZooKeeper."""

from hypothesis import given
from hypothesis import strategies as st

from koff.client.zookeeper.claims import Claim


def claim() -> Claim:
    return Claim("t", 0, session_number=0, czxid=1)


@given(
    st.lists(st.integers(0, 1000), unique=True, max_size=30).flatmap(
        lambda given_: st.tuples(st.just(sorted(given_)), st.permutations(given_))
    )
)
def test_processed_is_the_last_before_the_first_that_is_not(orders: tuple[list[int], list[int]]) -> None:
    delivered, done = orders
    ours = claim()
    for offset in delivered:
        ours.deliver(offset, object())
    left = set(delivered)
    for offset in done:
        ours.mark_processed(offset)
        left.discard(offset)
        before = [each for each in delivered if not left or each < min(left)]
        assert ours.processed_up_to == (before[-1] if before else None)
    assert ours.drained


def test_up_to_an_offset_leaves_those_behind_it() -> None:
    ours = claim()
    for offset in (3, 5, 9):
        ours.deliver(offset, object())
    assert ours.mark_processed_up_to(7) == 5
    assert not ours.drained
    assert ours.mark_processed(9) == 9
    assert ours.drained
    assert ours.last_delivered == 9


def test_what_failed_is_out_until_it_is_done_and_counts_its_deliveries() -> None:
    ours, raw = claim(), object()
    assert ours.deliver(0, raw) == 1
    assert ours.mark_failed(0) == (raw, 1)
    assert ours.drained
    assert ours.deliver(0, raw) == 2
    assert not ours.drained
    assert ours.mark_processed(0) == 0
    assert ours.mark_failed(0) is None
    assert ours.mark_processed(0) is None
