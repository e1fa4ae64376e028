"""When the cluster counts as lost, and which error is shown."""

from koff.monitor.outbox import Outbox
from tests.unit.monitor.fakes import at


def events(outbox: Outbox) -> list[str]:
    return [event.text for event in outbox.take_events()]


def test_a_failure_counts_only_if_no_request_was_answered_that_was_sent_later():
    """One broker of three that does not respond fails late what was sent long ago."""
    outbox = Outbox()
    outbox.note_response(at(5))
    outbox.note_failure("no response in time", at(0))
    assert outbox.failure is None
    outbox.note_failure("no response in time", at(6))
    assert outbox.failure == "no response in time"


def test_that_no_broker_can_be_reached_says_more_than_the_error_of_a_request():
    outbox = Outbox()
    outbox.note_unreachable("cannot reach Kafka", at(1))
    outbox.note_failure("_NOENT", at(2))
    assert outbox.failure == "cannot reach Kafka"
    outbox.note_response(at(3))
    assert outbox.failure is None


def test_the_loss_of_the_brokers_and_their_return_are_one_event_each_and_a_short_failure_is_none():
    outbox = Outbox()
    outbox.note_failure("no leader", at(1))
    outbox.report_reach(at(1))
    outbox.note_response(at(2))
    outbox.report_reach(at(2))
    assert events(outbox) == []
    for second in range(10, 20):
        outbox.note_failure("no response", at(second), names_cause=True)
        outbox.report_reach(at(second))
    assert events(outbox) == ["brokers lost"]
    outbox.note_response(at(21))
    outbox.report_reach(at(21))
    outbox.report_reach(at(22))
    assert events(outbox) == ["brokers back"]


def test_a_broker_of_several_that_does_not_respond_is_no_loss_of_the_brokers():
    outbox = Outbox()
    for second in range(10):
        outbox.note_failure("no response in time", at(second))
        outbox.note_unreachable("the only leader of what is read", at(second))
        outbox.report_reach(at(second))
    assert events(outbox) == []
    assert outbox.failure  # it is shown all the same
    outbox.note_failure("cannot reach Kafka", at(10), names_cause=True)
    outbox.report_reach(at(10))
    assert events(outbox) == ["brokers lost"]


def test_the_request_that_any_broker_could_answer_says_best_why_none_does():
    outbox = Outbox()
    outbox.note_failure("the certificate is not trusted", at(1), names_cause=True)
    outbox.note_unreachable("every connection was lost", at(2))
    outbox.note_failure("no response in time", at(3))
    assert outbox.failure == "the certificate is not trusted"
    outbox.note_response(at(2))
    assert outbox.failure == "no response in time"
