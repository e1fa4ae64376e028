"""The families: the data, docs/metrics.md, what is served, and Prometheus' rules agree."""

from __future__ import annotations

import re
import subprocess

from koff.serve import Server
from koff.serve.families import BY_NAME, FAMILIES
from koff.serve.own_metrics import Rendered, list_numbers
from koff.serve.series import LISTED_SERIES, PARTITION_SERIES, SHARD_SERIES
from koff.serve.view import MonitorStats
from tests.unit.serve.metrics_page import BLOCK, PAGE, fill_page
from tests.unit.serve.requests import request

OTHERS = {"koff_rows_withheld", "koff_build_info"}
"""Families that no table of series has."""


def test_each_family_has_one_source_of_numbers() -> None:
    sources = [
        *SHARD_SERIES,
        *PARTITION_SERIES,
        *LISTED_SERIES,
        *list_numbers(MonitorStats(), Rendered()),
        *OTHERS,
    ]
    assert sorted(sources) == sorted(BY_NAME)
    assert len(BY_NAME) == len(FAMILIES)


def test_the_page_says_what_the_code_says() -> None:
    page = PAGE.read_text()
    assert [found[2] for found in BLOCK.finditer(page)] == ["partition", "topic", "group", "cluster"]
    assert page == fill_page(page), "run python -m tests.unit.serve.metrics_page"


def test_the_page_names_no_family_that_there_is_not() -> None:
    named = set(re.findall(r"koff_[a-z_]+[a-z]", PAGE.read_text()))
    assert named <= BY_NAME.keys()


def test_a_query_is_about_its_family() -> None:
    assert [family.name for family in FAMILIES if family.name not in family.query] == []


def test_promtool_finds_no_fault_in_names_types_and_units(server: Server) -> None:
    body = request(server, "/metrics")[2]
    checked = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr.decode()) == (0, "")


def test_counters_and_units_have_their_suffix() -> None:
    for family in FAMILIES:
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        for unit, suffix in (
            ("seconds", "_seconds"),
            ("ratio", "_ratio"),
            ("offsets per second", "_per_second"),
        ):
            assert (family.unit == unit) == family.name.endswith(suffix), family.name
