"""No wait of the main thread is so long that Ctrl-C seems to be lost."""

from __future__ import annotations

import pytest

from koff.client.multicluster.pending_writes import WAKE_S, wait_in_turns


@pytest.mark.parametrize(
    ("left_s", "waits", "is_done"),
    [(None, [WAKE_S] * 3, True), (10.0, [WAKE_S] * 3, True), (1.5 * WAKE_S, [WAKE_S, 0.5 * WAKE_S], False)],
)
def test_a_long_wait_is_many_short_ones(left_s: float | None, waits: list[float], is_done: bool) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == 3

    def left() -> float | None:
        return None if left_s is None else left_s - sum(waited)

    assert wait_in_turns(wait, left) == is_done
    assert waited == pytest.approx(waits)
