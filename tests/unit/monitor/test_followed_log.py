"""Records are applied once, in order, and not before they may be."""

from __future__ import annotations

from koff.monitor.followed_log import LIVE_S, STALL_S, FollowedLog
from koff.monitor.plan import Plan, Replay, Seed
from koff.monitor.requests import Lost, Moment, Polled, Records, Start, Topic

TOPIC = "__consumer_offsets"
Applied = list[tuple[int, list[bytes | None]]]


def at(second: float) -> Moment:
    return Moment(second, 0)


def follow(plan: Plan, *, partitions: int = 1) -> tuple[FollowedLog, Applied]:
    applied: Applied = []
    log = FollowedLog(TOPIC, lambda number, keys, values, live, now: applied.append((number, list(keys))))
    log.note_topic(Topic("id", partitions))
    log.begin(dict.fromkeys(range(partitions), plan), at(0))
    return log, applied


def polled(*offsets: int, attempt: int = 1, partition: int = 0) -> Polled:
    keys = [str(offset).encode() for offset in offsets]
    return Polled(TOPIC, [Records(partition, attempt, keys, keys, offsets)])


def fetch_end(log: FollowedLog, end: int, second: float, *, epoch: int = -1) -> list[int]:
    epochs = {(TOPIC, 0): epoch}
    return log.receive_offsets("end", {0: end}, at(second), epochs, log.known())


def test_records_are_applied_as_they_come() -> None:
    log, applied = follow(Replay(0, ""))
    log.receive_polled(polled(0, 1), at(1))
    log.receive_polled(polled(5), at(2))
    assert applied == [(0, [b"0", b"1"]), (0, [b"5"])]
    assert log.partitions[0].position == 6


def test_a_replay_says_up_to_where_there_is_history_and_no_other_start_does() -> None:
    log, _ = follow(Seed(0, ""))
    log.note_topic(Topic("id", 2))
    for part in log.partitions.values():
        part.start, part.stable = 10, 500
    starts = log.begin({1: Replay(10, "")}, at(0))
    assert starts[1] == Start(10, 1, -1, history_until=500)
    log.note_failure("no broker", at(1), denied=False)
    assert {start.history_until for start in log.begin_again(at(2)).values()} == {0}


def test_records_that_come_twice_are_applied_once() -> None:
    log, applied = follow(Replay(0, ""))
    for _ in range(2):
        log.receive_polled(polled(0, 1), at(1))
    log.receive_polled(polled(1, 2), at(1))
    assert applied == [(0, [b"0", b"1"]), (0, [b"2"])]


def test_records_of_an_earlier_attempt_are_not_applied() -> None:
    log, applied = follow(Replay(0, ""))
    log.reset(0)
    log.begin({0: Replay(0, "")}, at(1))
    log.receive_polled(polled(7, attempt=1), at(1))
    assert applied == []
    assert log.partitions[0].position == 0


def test_records_that_waited_are_no_more_live_than_when_they_were_read() -> None:
    live: list[bool] = []
    log = FollowedLog(TOPIC, lambda number, keys, values, is_live, now: live.append(is_live))
    log.note_topic(Topic("id", 1))
    log.begin({0: Seed(0, "")}, at(0))
    log.partitions[0].note_seed(at(1), at(1), ())
    log.receive_polled(polled(0, 1), at(LIVE_S + 9))  # written long before
    fetch_end(log, 2, LIVE_S + 10)  # which the reader has reached
    assert live == [False]


def test_records_wait_until_the_reader_has_passed_what_the_coordinators_said() -> None:
    log, applied = follow(Seed(3, ""))
    log.receive_polled(polled(3), at(1))
    log.partitions[0].note_seed(at(1), at(2), failed=())
    assert log.partitions[0].current == at(1)
    fetch_end(log, 6, 3)
    log.receive_polled(polled(4), at(4))
    assert applied == []
    log.receive_polled(polled(5), at(5))
    assert applied == [(0, [b"3"]), (0, [b"4"]), (0, [b"5"])]
    assert log.partitions[0].current == at(1)
    fetch_end(log, 6, 6)
    assert log.partitions[0].current == at(6)


def test_records_that_wait_are_applied_if_the_coordinators_do_not_answer() -> None:
    log, applied = follow(Seed(3, ""))
    log.receive_polled(polled(3), at(1))
    log.stop_waiting(0)
    assert applied == [(0, [b"3"])]


def test_records_do_not_wait_for_coordinators_once_the_log_itself_is_read() -> None:
    log, applied = follow(Replay(0, ""))
    log.partitions[0].wait()  # an open transaction held records back
    log.receive_polled(polled(0, 1), at(1))
    fetch_end(log, 3, 2)
    assert applied == []
    fetch_end(log, 2, 3)
    assert applied == []  # lower than before: not believed
    log.receive_polled(polled(2), at(4))
    fetch_end(log, 3, 5)
    assert applied == [(0, [b"0", b"1"]), (0, [b"2"])]
    assert log.partitions[0].current == at(5)


def test_records_wait_for_the_first_response_of_the_coordinators_whatever_is_read() -> None:
    log, applied = follow(Seed(3, ""))
    log.receive_polled(polled(3), at(1))
    fetch_end(log, 4, 2)
    assert applied == []


def test_a_partition_that_is_lost_in_an_earlier_attempt_is_not_lost() -> None:
    log, _ = follow(Replay(0, ""))
    lost = Polled(TOPIC, lost=[Lost(0, 1, "out of range")])
    assert log.receive_polled(lost, at(1)) == [Lost(0, 1, "out of range")]
    log.reset(0)
    log.begin({0: Replay(0, "")}, at(1))
    assert log.receive_polled(lost, at(1)) == []


def test_a_reader_that_failed_begins_again_at_the_positions() -> None:
    log, _ = follow(Replay(0, ""))
    log.receive_polled(polled(0, 1), at(1))
    log.note_failure("refused", at(2), denied=True)
    assert log.denied == "refused"
    assert log.retry_s == 3
    assert log.begin_again(at(3))[0].offset == 2
    log.receive_polled(polled(2, attempt=2), at(4))
    assert log.denied is None


def test_a_topic_that_is_denied_for_hours_is_tried_again() -> None:
    log, _ = follow(Replay(0, ""))
    for _ in range(2_000):
        log.note_failure("refused", at(2), denied=True)
    assert log.retry_s == 12


def test_a_partition_that_does_not_move_is_begun_again() -> None:
    log, _ = follow(Replay(0, ""))
    log.receive_offsets("stable", {0: 5}, at(1), {}, log.known())
    assert log.restart_stalled(at(STALL_S)) == {}
    assert log.restart_stalled(at(STALL_S + 1))[0].offset == 0
    assert log.restart_stalled(at(STALL_S + 2)) == {}


def test_a_partition_counts_as_stalled_until_it_moves() -> None:
    log, _ = follow(Replay(0, ""))
    log.receive_offsets("stable", {0: 5}, at(1), {}, log.known())
    log.restart_stalled(at(STALL_S + 1))
    log.restart_stalled(at(STALL_S + 2))
    assert log.stalled == {0: 0}
    log.receive_polled(polled(0, attempt=2), at(STALL_S + 3))
    log.restart_stalled(at(STALL_S + 4))
    assert log.stalled == {}


def live_or_history(log: FollowedLog) -> list[bool]:
    """Collects, from now on, for each batch whether it is live."""
    found: list[bool] = []
    log._apply = lambda number, keys, values, is_live, now: found.append(is_live)
    return found


def test_records_are_history_until_the_reader_is_at_the_end_and_live_then() -> None:
    log, _ = follow(Replay(0, ""))
    found = live_or_history(log)
    log.receive_polled(polled(0), at(1))
    fetch_end(log, 2, 1)
    log.receive_polled(polled(1), at(2))
    log.receive_polled(polled(2), at(3))
    assert found == [False, False, True]


def test_records_are_history_after_a_long_pause_until_the_reader_is_at_the_end_again() -> None:
    log, _ = follow(Replay(0, ""))
    found = live_or_history(log)
    fetch_end(log, 0, 1)
    log.note_failure("refused", at(2), denied=False)
    log.begin_again(at(3))
    log.receive_polled(polled(0, attempt=2), at(LIVE_S))
    fetch_end(log, 7, LIVE_S + 50)
    log.receive_polled(polled(1, attempt=2), at(LIVE_S + 51))
    fetch_end(log, 3, LIVE_S + 52)
    log.receive_polled(polled(2, attempt=2), at(LIVE_S + 53))
    log.receive_polled(polled(6, attempt=2), at(LIVE_S + 54))
    log.receive_polled(polled(7, attempt=2), at(LIVE_S + 55))
    assert found == [True, False, False, False, True]


def test_an_idle_partition_is_not_begun_again() -> None:
    log, _ = follow(Replay(5, ""))
    log.receive_offsets("stable", {0: 5}, at(1), {}, log.known())
    assert log.restart_stalled(at(100 * STALL_S)) == {}


def test_a_partition_begins_again_when_another_leader_was_elected() -> None:
    log, _ = follow(Replay(5, ""))
    fetch_end(log, 5, 1, epoch=1)
    assert log.restart_elected(at(1)) == {}
    fetch_end(log, 5, 2, epoch=2)
    assert log.restart_elected(at(2))[0].offset == 5
    assert log.restart_elected(at(2)) == {}


def test_responses_to_requests_of_another_life_mean_nothing() -> None:
    log, _ = follow(Replay(0, ""))
    known = log.known()
    log.reset(0)
    log.receive_offsets("start", {0: 7}, at(1), {}, known)
    assert log.partitions[0].start is None


def test_partitions_of_a_topic_created_again_are_lost() -> None:
    log, _ = follow(Replay(0, ""), partitions=2)
    assert log.note_topic(Topic("other", 3)) == [0, 1]
    assert len(log.partitions) == 3
    assert not any(part.is_reading for part in log.partitions.values())


def test_what_stood_for_a_hidden_topic_is_lost_when_the_topic_appears_even_if_it_is_another_one() -> None:
    log, _ = follow(Replay(0, ""), partitions=3)
    assert log.note_topic(None) == [0, 1, 2]
    log.hide("no DESCRIBE")
    assert log.note_topic(Topic("other", 3)) == [0]
    assert log.partitions.keys() == {0, 1, 2}


def test_records_and_responses_of_the_earlier_topic_mean_nothing_to_the_one_created_again() -> None:
    log, applied = follow(Replay(0, ""))
    known = log.known()
    log.note_topic(Topic("other", 1))
    log.receive_offsets("stable", {0: 1000}, at(1), {}, known)
    assert log.partitions[0].stable is None
    log.begin({0: Replay(0, "")}, at(1))
    log.receive_polled(polled(7, attempt=1), at(2))
    assert applied == []


def test_a_partition_begins_with_the_leader_epoch_of_its_bounds() -> None:
    log = FollowedLog(TOPIC, lambda *_: None)
    log.note_topic(Topic("id", 1))
    log.receive_offsets("stable", {0: 5}, at(1), {(TOPIC, 0): 3}, log.known())
    assert log.begin({0: Seed(5, "")}, at(1))[0].leader_epoch == 3


def test_a_leaderless_partition_is_not_waited_for() -> None:
    log, _ = follow(Replay(0, ""), partitions=2)
    log.leaderless = frozenset({1})
    assert log.unread == [0]


def test_only_a_partition_whose_bounds_are_known_counts_as_empty() -> None:
    log = FollowedLog(TOPIC, lambda *_: None)
    log.note_topic(Topic("id", 2))
    assert log.find_empty() == set()
    log.receive_offsets("start", {0: 0, 1: 0}, at(1), {}, log.known())
    assert log.find_empty() == set()
    log.receive_offsets("stable", {0: 0, 1: 5}, at(1), {}, log.known())
    assert log.find_empty() == {0}
