"""How far the messages of a partition are processed, in whichever order they are."""

from hypothesis import given
from hypothesis import strategies as st

from koff.client.delivery.partition import ReadPartition
from koff.client.start_offset import StartOffset


def read_partition() -> ReadPartition:
    return ReadPartition("t", 0)


@given(
    st.lists(st.integers(0, 1000), unique=True, max_size=30).flatmap(
        lambda given_: st.tuples(st.just(sorted(given_)), st.permutations(given_))
    )
)
def test_processed_is_the_last_before_the_first_that_is_not(orders: tuple[list[int], list[int]]) -> None:
    delivered, done = orders
    ours = read_partition()
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
    ours = read_partition()
    for offset in (3, 5, 9):
        ours.deliver(offset, object())
    assert ours.mark_processed_up_to(7) == 5
    assert not ours.drained
    assert ours.mark_processed(9) == 9
    assert ours.drained
    assert ours.last_delivered == 9


def test_what_failed_is_out_until_it_is_done_and_counts_its_deliveries() -> None:
    ours, raw = read_partition(), object()
    assert ours.deliver(0, raw) == 1
    assert ours.mark_failed(0) == (raw, 1)
    assert ours.drained
    assert ours.deliver(0, raw) == 2
    assert not ours.drained
    assert ours.mark_processed(0) == 0
    assert ours.mark_failed(0) is None
    assert ours.mark_processed(0) is None


def test_control_records_after_the_last_message_are_no_lag() -> None:
    ours = read_partition()
    assert (ours.position, ours.lag) == (StartOffset.OLDEST, -1)
    ours.next_offset, ours.end_offset, ours.was_read = 2, 3, True
    assert (ours.position, ours.lag) == (2, 1)  # so far, nobody knows what is at 2
    ours.read_to = 3
    assert (ours.position, ours.lag) == (3, 0)
    ours.buffered.append(object())  # fetched, and not handed out
    assert (ours.position, ours.lag) == (2, 1)


def test_the_lag_is_unknown_while_the_end_of_the_partition_is() -> None:
    ours = read_partition()
    ours.next_offset, ours.was_read = 1, True
    assert ours.lag == -1
