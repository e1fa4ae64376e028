"""The one sentence about a group."""

import pytest

from koff.lag.late_causes import Cause
from koff.lag.verdict import Verdict
from koff.view.cause_texts import Finding
from koff.view.sentences import write_sentence


def find(cause: Cause, text: str) -> list[Finding]:
    return [Finding(cause, text, 1, 1.0, 1, "t", 0, None)]


def test_a_group_that_keeps_up():
    assert write_sentence(Verdict.OK, [], 0, 0.0) == "Keeps up"
    assert write_sentence(Verdict.OK, [], 12, 2.4) == "Keeps up; 12 records wait, the oldest for 2 s"


def test_a_group_whose_incident_may_not_be_over_keeps_up_again():
    assert write_sentence(Verdict.OK, [], 0, 0.0, late_for_s=70.0) == "Keeps up again"


def test_a_group_that_stopped_says_why_and_how_much_waits():
    found = find(Cause.NO_MEMBERS, "its only member has left, and it committed nothing for 4 min")
    assert write_sentence(Verdict.ERR, found, 14_973, 240.0, late_for_s=100.0) == (
        "Stopped: its only member has left, and it committed nothing for 4 min; 14,973 records wait, "
        "the oldest for 4 min"
    )


def test_a_group_that_is_late_says_for_how_long():
    found = find(Cause.TOO_SLOW, "it consumes 10 offsets a second, and 20 are produced")
    assert write_sentence(Verdict.WARN, found, 1, None, late_for_s=130.0) == (
        "Late for 2 min 10 s: it consumes 10 offsets a second, and 20 are produced; 1 record waits"
    )
    assert write_sentence(Verdict.WARN, [], 1, None) == "Late; 1 record waits"


@pytest.mark.parametrize("reason", ["commits_not_current", "rows_missing", "lags_withheld", "lags_unknown"])
def test_a_group_without_a_known_lag_says_why(reason):
    sentence = write_sentence(Verdict.UNKNOWN, [], None, None, reason=reason)
    assert sentence.startswith("Unknown: ")
    assert reason not in sentence  # people read words, not codes


def test_a_late_group_whose_lag_is_withheld_stays_late():
    sentence = write_sentence(Verdict.ERR, [], None, None, late_for_s=130.0, reason="lags_withheld")
    assert sentence == "Late for 2 min 10 s; not known now: some of its lags are not current"


def test_a_group_whose_lag_is_withheld_is_not_said_to_keep_up():
    sentence = write_sentence(Verdict.OK, [], None, None, reason="commits_not_current")
    assert sentence == "Kept up before; not known now: its commits are not read up to now"


@pytest.mark.parametrize(
    ("late_s", "sentence"),
    [
        (60.0, "Keeps up; 9 records wait, the oldest for 1 min"),
        (90.0, "Not late yet: 2 min is allowed; 9 records wait, the oldest for 1 min 30 s"),
    ],
)
def test_a_group_that_is_half_as_late_as_it_may_be_is_not_said_to_keep_up(late_s, sentence):
    assert write_sentence(Verdict.OK, [], 9, late_s, allowance_s=120.0) == sentence
