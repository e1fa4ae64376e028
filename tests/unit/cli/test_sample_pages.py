"""The samples of output in README.md and docs/ are what the commands print."""

import pytest

from tests.unit.cli.sample_pages import ROOT, build_samples, fill_page


@pytest.mark.parametrize("name", ["README.md", "docs/verdicts.md", "docs/events.md"])
def test_the_samples_of_a_page_are_what_koff_prints(name):
    page = (ROOT / name).read_text()
    assert page == fill_page(page, build_samples()[name])
