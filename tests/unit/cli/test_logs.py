"""Where log lines go."""

from __future__ import annotations

import pytest
import structlog

from koff.cli.options import set_up_logs


def test_a_log_line_is_json_with_its_component(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json")
    structlog.get_logger(component="test").warning("seen")
    assert '"component": "test"' in capsys.readouterr().err
