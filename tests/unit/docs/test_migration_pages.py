"""docs/migration/ names what there is: koff's families and keys, and all families of `compat`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from koff.config.settings import SETTINGS, build_schema
from koff.serve.metrics.compat import COMPAT_FAMILIES
from koff.serve.metrics.families import BY_NAME

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {path.stem: path.read_text() for path in (DOCS / "migration").glob("*.md")}
KEYS = SETTINGS.keys() | build_schema()["properties"].keys()


def list_rows(program: str, heading: str) -> Iterator[list[str]]:
    """The cells of the rows of the table below a heading."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGES[program], re.MULTILINE | re.DOTALL)
    for line in section.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def list_names(cell: str) -> list[str]:
    """What is in backquotes."""
    return re.findall("`([^`]*)`", cell)


def list_settings() -> Iterator[str]:
    """The names in koff's column of the tables of settings."""
    for program in PAGES:
        rows = list(list_rows(program, "Settings"))
        assert len(rows) > 10
        for row in rows:
            yield from list_names(row[1])


def test_there_is_a_page_for_each_program():
    assert PAGES.keys() == {"burrow", "kminion", "kafka_exporter", "kafka-lag-exporter", "klag-exporter"}


@pytest.mark.parametrize("program", PAGES)
def test_each_family_that_is_named_exists(program: str):
    named = set(re.findall(r"koff_[a-z_]+[a-z]", PAGES[program]))
    assert "koff_group_lag" in named
    assert named <= BY_NAME.keys()


@pytest.mark.parametrize("exporter", COMPAT_FAMILIES)
def test_what_compat_serves_is_on_the_page_as_the_same(exporter: str):
    rows = list(list_rows(exporter, "Metrics"))
    same = [name for row in rows if row[2].startswith("same") for name in list_names(row[0])]
    assert sorted(same) == sorted(family.name for family in COMPAT_FAMILIES[exporter])


def test_each_setting_is_an_option_a_path_a_key_or_a_property():
    keys = {name for name in list_settings() if re.fullmatch("[a-z_]+", name)}
    assert "granularity" in keys
    assert keys <= KEYS


def test_librdkafka_knows_each_property():
    properties = {name for name in list_settings() if "." in name}
    assert "sasl.mechanism" in properties
    assert [name for name in properties if not is_property(name)] == []
    assert not is_property("sasl.nothing")


def is_property(name: str) -> bool:
    """Whether librdkafka knows the property. It may refuse the value."""
    try:
        Consumer({"group.id": "unused", name: "x"}).close()
    except KafkaException as error:
        return "No such configuration property" not in str(error)
    return True
