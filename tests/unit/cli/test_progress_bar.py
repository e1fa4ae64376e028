"""The bar of long commands."""

import io
import itertools

import pytest

from koff.cli import progress_bar as progress
from koff.kafkatest import wait_until


class Terminal(io.StringIO):
    """Keeps what was written to it."""

    def isatty(self) -> bool:
        return True


def seen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error from now on; pytest itself sets it before each test."""
    terminal = Terminal()
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.01)
    monkeypatch.setattr("sys.stderr", terminal)
    return terminal


def test_a_terminal_sees_what_is_done_and_what_there_is_to_do(monkeypatch: pytest.MonkeyPatch):
    terminal, looks = seen(monkeypatch), itertools.count()

    def look() -> tuple[int, int]:
        return min(3_000 * next(looks), 12_000), 12_000

    with progress.show_bar("backfill", look, progress.format_offsets):
        wait_until(lambda: "100%" in terminal.getvalue(), what="a bar that is full")
    shown = terminal.getvalue().split("\r")
    assert any(line.endswith("  0%  0 of 12,000 offsets, 0/s") for line in shown)
    assert any("  75%  9,000 of 12,000 offsets" in line for line in shown)


def test_nothing_is_shown_of_what_is_not_known(monkeypatch: pytest.MonkeyPatch):
    terminal, looks = seen(monkeypatch), itertools.count()
    with progress.show_bar("backfill", lambda: (next(looks), 0), progress.format_megabytes):
        wait_until(lambda: next(looks) > 3 and "backfill" in terminal.getvalue(), what="some looks")
    assert "MB" not in terminal.getvalue()


def test_a_line_takes_the_place_of_the_one_before(monkeypatch: pytest.MonkeyPatch):
    terminal = seen(monkeypatch)
    with progress.show_status_line() as show:
        show("report: 1 summary")
        show("report: 2 writing")
    assert terminal.getvalue().split("\r\033[K") == ["", "report: 1 summary", "report: 2 writing", ""]


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]):
    with (
        progress.show_bar("backfill", lambda: (1, 1), progress.format_offsets),
        progress.show_status_line() as show,
    ):
        show("report: 1 summary")
    assert capsys.readouterr() == ("", "")
