"""Descriptions of groups in responses of several versions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from koff.client.groups.descriptions import GroupListing, _convert_group
from koff.proto.requests import Api

LISTINGS = {"g": GroupListing("g", "classic", "Stable", "consumer")}


@pytest.mark.parametrize(
    ("code", "state", "error"),
    [(0, "Dead", "GROUP_ID_NOT_FOUND"), (69, "Dead", "GROUP_ID_NOT_FOUND"), (0, "Stable", "")],
    ids=["up to version 5", "version 6", "a group that exists"],
)
def test_a_group_that_does_not_exist_is_an_error_in_every_version(code: int, state: str, error: str) -> None:
    response = SimpleNamespace(
        error_code=code, group_id="g", group_state=state, protocol_type="", protocol_data="", members=()
    )
    assert _convert_group(Api.DESCRIBE_GROUPS, response, LISTINGS).error == error
