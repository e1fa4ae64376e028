"""The dashboards of grafana/: they are what build.py makes, and show what koff serves by default."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koff.serve.metrics.families import BY_NAME

FOLDER = Path(__file__).parents[3] / "grafana"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}


def list_queries(board: dict[str, Any]) -> Iterator[str]:
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query")


def test_the_files_are_what_build_py_makes():
    build = runpy.run_path(str(FOLDER / "build.py"))
    made = {board["uid"]: build["render"](board) for board in build["DASHBOARDS"]}
    assert made == {path.stem: path.read_text() for path in FOLDER.glob("*.json")}, "run grafana/build.py"


@pytest.mark.parametrize("name", BOARDS)
def test_queries_use_metrics_that_are_served_by_default(name: str):
    for query in list_queries(BOARDS[name]):
        named = set(re.findall(r"\b(?:koff|process)_[a-z_]+", query)) - PROCESS
        assert [metric for metric in named if not BY_NAME[metric].default] == [], query


@pytest.mark.parametrize("name", BOARDS)
def test_no_query_returns_each_partition_of_a_cluster(name: str):
    for query in list_queries(BOARDS[name]):
        for metric, where in re.findall(r"(koff_group_lag(?:_seconds)?)\{(.*?)\}", query):
            assert '="$group"' in where or '="$topic"' in where, (metric, query)
            assert re.match(r"(topk|max)\b", query), query


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap_and_are_unlike(name: str):
    cells = [
        (x, y)
        for panel in BOARDS[name]["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(x < 24 for x, _ in cells)
    panels = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("name", BOARDS)
def test_links_lead_to_dashboards_and_set_variables_that_there_are(name: str):
    for path, given in re.findall(r'"url": "/d/([^?"]+)\?([^"]*)"', json.dumps(BOARDS[name])):
        variables = {variable["name"] for variable in BOARDS[path]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", given)) <= variables
