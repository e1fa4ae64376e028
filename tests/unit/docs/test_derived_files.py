"""The pages and files that follow from the code are up to date."""

import pytest

from tests.unit.docs.derived_files import FILES, ROOT


@pytest.mark.parametrize("name", FILES)
def test_what_follows_from_the_code_is_as_the_code_says(name):
    text = (ROOT / name).read_text()
    assert FILES[name](text) == text, "run python -m tests.unit.docs.derived_files"
