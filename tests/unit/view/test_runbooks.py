"""The address of a group's runbook."""

import pytest

from koff.view.owners import build_runbook_url, check_runbook_template


def test_names_are_filled_in_and_cannot_change_the_address():
    template = "https://wiki/{cluster}/{cause}?group={group}"
    found = build_runbook_url(template, cluster="eu", group="a&b=/#{x}", cause="no_members")
    assert found == "https://wiki/eu/no_members?group=a%26b%3D%2F%23%7Bx%7D"


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("javascript:alert({group})", "must begin with"),
        ("//wiki/{group}", "must begin with"),
        ("https:///{group}", "must begin with"),
        ("https://wiki/{topic}", "may stand in braces"),
        ("https://wiki/{}", "may stand in braces"),
        ("https://wiki/{group.x}", "may stand in braces"),
        ("https://wiki/{group", "may stand in braces"),
        ("https://[wiki/", "Invalid IPv6"),
    ],
)
def test_what_makes_no_address_is_refused(template, error):
    with pytest.raises(ValueError, match=error):
        check_runbook_template(template)
    check_runbook_template("http://wiki/{group}")
