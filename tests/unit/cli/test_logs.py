"""Where log lines go."""

from __future__ import annotations

import io
import sys

import pytest
import structlog

from koff.cli.options import set_up_logs


class FullDisk(io.StringIO):
    """A stream that takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())
    set_up_logs("json")
    structlog.get_logger(component="test").warning("lost")


def test_a_log_line_is_json_with_its_component(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json")
    structlog.get_logger(component="test").warning("seen")
    assert '"component": "test"' in capsys.readouterr().err
