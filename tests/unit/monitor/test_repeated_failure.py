"""How often a failure that repeats is logged, and when it is tried again."""

from koff.monitor.run import RepeatedFailure


def test_a_failure_is_logged_at_once_then_each_minute_and_after_ten_minutes_each_ten_minutes():
    failure = RepeatedFailure()
    logged = [second for second in range(0, 3600, 2) if failure.note(float(second))]
    assert logged == [*range(0, 541, 60), *range(1140, 3600, 600)]
    assert failure.count == 1800


def test_the_pause_before_the_next_try_grows_to_ten_seconds():
    failure, pauses_s = RepeatedFailure(), []
    for second in range(20):
        failure.note(float(second))
        pauses_s.append(failure.retry_s)
    assert pauses_s[0] == 1.0
    assert pauses_s == sorted(pauses_s)
    assert pauses_s[-1] == 10.0
