"""A cluster that was watched for a while."""

import pytest

from tests.unit.serve.events.watched import Watched, keep_up


@pytest.fixture
def watched() -> Watched:
    """Group g, which keeps up, was seen."""
    watched = Watched()
    keep_up(watched)
    assert watched.look() == []
    return watched
