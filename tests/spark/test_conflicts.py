"""A change that meets another change of the same table is tried again, but not for ever."""

from __future__ import annotations

import pytest
from delta.exceptions import ConcurrentAppendException

from koff.spark.tables import conflicts
from koff.spark.tables.conflicts import ATTEMPTS, retry_conflicts


@pytest.mark.parametrize("failures", [0, 2, ATTEMPTS - 1, ATTEMPTS])
def test_conflicts_are_retried_until_the_attempts_are_used_up(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(conflicts, "FIRST_PAUSE_S", 0.0)
    calls: list[int] = []

    def change() -> str:
        calls.append(1)
        if len(calls) <= failures:
            if len(calls) % 2:
                raise ConcurrentAppendException("files were added meanwhile")
            raise RuntimeError("calling o1.save: io.delta.exceptions.ConcurrentTransactionException: again")
        return "done"

    if failures == ATTEMPTS:
        with pytest.raises(RuntimeError, match="again"):
            retry_conflicts(change)
    else:
        assert retry_conflicts(change) == "done"
    assert len(calls) == min(failures + 1, ATTEMPTS)


def test_another_error_is_raised_at_once() -> None:
    calls: list[int] = []

    def change() -> None:
        calls.append(1)
        raise ValueError("no conflict")

    with pytest.raises(ValueError, match="no conflict"):
        retry_conflicts(change)
    assert calls == [1]
