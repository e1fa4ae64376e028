"""A copied error says the same as the first, and keeps nothing."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from koff.client.errors import OffsetOutOfRange, ProduceError
from koff.errors import Denied, KoffError, copy_error


@pytest.mark.parametrize(
    "error",
    [
        Denied("no"),
        OffsetOutOfRange("t", 1, 5, 10, 20),
        ProduceError("t-1", 2, {0: "no"}, [0]),
        KafkaException(KafkaError(KafkaError._TIMED_OUT, "late")),
        ConnectionRefusedError(111, "refused", "h"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        KeyError("k"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_copy_is_equal(error):
    copied = copy_error(error)
    assert copied is not error
    assert (type(copied), copied.args, str(copied)) == (type(error), error.args, str(error))
    assert copied.__dict__ == error.__dict__
    assert getattr(copied, "errno", None) == getattr(error, "errno", None)


def test_the_copy_has_its_cause_and_no_traceback():
    def fail() -> None:
        try:
            raise OSError("cause")
        except OSError as error:
            raise KoffError("no") from error

    with pytest.raises(KoffError) as caught:
        fail()
    copied = copy_error(caught.value)
    assert (copied.__traceback__, copied.__context__) == (None, None)
    assert not hasattr(copied, "__notes__")
    assert repr(copied.__cause__) == "OSError('cause')"
    assert copied.__cause__ is not caught.value.__cause__
    assert copied.__cause__.__traceback__ is None


def test_an_error_that_nobody_expected_says_where_it_was_raised():
    def fail() -> None:
        raise TypeError("a fault")

    with pytest.raises(TypeError) as caught:
        fail()
    first = copy_error(caught.value)
    with pytest.raises(TypeError) as caught:
        raise first
    assert "in fail" in first.__notes__[0]
    assert len(copy_error(caught.value).__notes__) == 2
    assert len(first.__notes__) == 1
