"""Where log lines go."""

import pytest
import structlog

from koff.cli.log_lines import set_up_logs


def test_a_log_line_is_json_with_its_component(capsys: pytest.CaptureFixture[str]):
    set_up_logs("json")
    structlog.get_logger(component="test").warning("seen")
    assert '"component": "test"' in capsys.readouterr().err


def test_a_traceback_shows_no_local_variables(capsys: pytest.CaptureFixture[str]):
    """structlog shows them by default where the library rich is installed, as it is for tests."""
    set_up_logs("text")
    password = "".join(["open", "-", "sesame"])
    try:
        raise ValueError(len(password))
    except ValueError:
        structlog.get_logger(component="test").exception("seen")
    written = capsys.readouterr().err
    assert "ValueError: 11" in written
    assert "open-sesame" not in written
