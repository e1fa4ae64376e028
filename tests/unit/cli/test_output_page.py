"""docs/output.md has the fields of the code."""

from tests.unit.cli.output_page import PAGE, fill_page


def test_the_page_has_the_fields_of_the_code():
    assert PAGE.read_text() == fill_page(PAGE.read_text())
