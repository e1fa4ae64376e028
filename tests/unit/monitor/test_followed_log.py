"""Records are applied once, in order, and not before they may be."""

from koff.monitor.followed_log import LIVE_S, FollowedLog
from koff.monitor.plan import Plan, Replay, Seed
from koff.monitor.requests import Polled, Records, Topic, Watermarks
from tests.unit.monitor.fakes import at

TOPIC = "__consumer_offsets"
Applied = list[tuple[int, list[bytes | None]]]


def follow(plan: Plan, *, partitions: int = 1) -> tuple[FollowedLog, Applied]:
    applied: Applied = []
    log = FollowedLog(TOPIC, lambda number, keys, values, live, now: applied.append((number, list(keys))))
    log.note_topic(Topic("id", partitions))
    log.begin(dict.fromkeys(range(partitions), plan), at(0))
    return log, applied


def polled(*offsets: int, attempt: int = 1, partition: int = 0) -> Polled:
    keys = [str(offset).encode() for offset in offsets]
    return Polled(TOPIC, [Records(partition, attempt, keys, keys, offsets)])


def return_end(log: FollowedLog, end: int, second: float) -> None:
    log.receive_polled(Polled(TOPIC, ends={0: Watermarks(1, end, end, at(second))}), at(second))


def test_records_that_come_twice_are_applied_once():
    log, applied = follow(Replay(0, ""))
    for _ in range(2):
        log.receive_polled(polled(0, 1), at(1))
    log.receive_polled(polled(1, 2), at(1))
    assert applied == [(0, [b"0", b"1"]), (0, [b"2"])]


def test_records_that_waited_are_no_more_live_than_when_they_were_read():
    live: list[bool] = []
    log = FollowedLog(TOPIC, lambda number, keys, values, is_live, now: live.append(is_live))
    log.note_topic(Topic("id", 1))
    log.begin({0: Seed(0, "")}, at(0))
    log.partitions[0].note_seed(at(1), at(1), ())
    log.receive_polled(polled(0, 1), at(LIVE_S + 9))  # written long before
    return_end(log, 2, LIVE_S + 10)  # which the reader has reached
    assert live == [False]


def test_records_wait_until_the_reader_has_passed_what_the_coordinators_said():
    log, applied = follow(Seed(3, ""))
    log.receive_polled(polled(3), at(1))
    log.partitions[0].note_seed(at(1), at(2), failed=())
    assert log.partitions[0].current == at(1)
    return_end(log, 6, 3)
    log.receive_polled(polled(4), at(4))
    assert applied == []
    log.receive_polled(polled(5), at(5))
    assert applied == [(0, [b"3"]), (0, [b"4"]), (0, [b"5"])]
    assert log.partitions[0].current == at(1)
    return_end(log, 6, 6)
    assert log.partitions[0].current == at(6)


def test_a_topic_that_is_denied_for_hours_is_tried_again():
    log, _ = follow(Replay(0, ""))
    for _ in range(2_000):
        log.note_failure("refused", at(2), denied=True)
    assert log.retry_s == 12


def test_responses_to_requests_of_another_life_mean_nothing():
    log, _ = follow(Replay(0, ""))
    resets = log.resets()
    log.reset(0)
    log.receive_bounds("start", {0: 7}, resets)
    assert log.partitions[0].start is None


def test_what_stood_for_a_hidden_topic_is_lost_when_the_topic_appears_even_if_it_is_another_one():
    log, _ = follow(Replay(0, ""), partitions=3)
    assert log.note_topic(None) == [0, 1, 2]
    log.hide("no DESCRIBE")
    assert log.note_topic(Topic("other", 3)) == [0]
    assert log.partitions.keys() == {0, 1, 2}
