"""The options of `koff demo` that are checked before anything starts."""

import pytest
from click.testing import CliRunner

from koff.cli import main


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--incident", "none-such"], "--incident none-such is none of audit-archive, email-sender, "),
        (["--incident", "settlement", "--calm"], "give one of the two"),
    ],
)
def test_incidents_that_cannot_be_played_are_refused(args: list[str], told: str):
    result = CliRunner().invoke(main, ["demo", *args])
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert "This starts a real Kafka" not in result.stdout
