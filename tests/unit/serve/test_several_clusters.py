"""What is served of several clusters: each family once, with the series of all of them."""

import re
import zlib
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from koff.serve.accepted import OPENMETRICS, PROMETHEUS_TEXT, Format
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.serve.metrics.exposition import Exposition
from koff.serve.metrics.families import FAMILIES
from koff.serve.rendering import Renderer
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from tests.unit.serve.requests import request
from tests.unit.serve.views import EVERYTHING, Source, fill_tracker, take_view

EMPTY = ClusterView(
    "empty", Tracker().take_snapshot(0), Readiness(False, "not ready: away"), MonitorStats(up=False)
)


def label(view: ClusterView, **labels: str) -> ClusterView:
    return replace(view, labels=labels)


def render(source: Source, form: Format = PROMETHEUS_TEXT) -> str:
    return zlib.decompress(Renderer(source).render(form).gzipped, 31).decode()


def list_heads(text: str) -> list[str]:
    return re.findall(r"^# HELP (\S+)", text, re.MULTILINE)


@pytest.mark.parametrize("form", [PROMETHEUS_TEXT, OPENMETRICS], ids=["text", "openmetrics"])
def test_each_family_is_there_once_with_the_series_of_all_clusters(form):
    views = [take_view(fill_tracker(size), name) for name, size in (("b", 2), ("a", 1), ("c", 3))]
    text = render(Source(*views, EMPTY), form)
    heads = list_heads(text)
    assert len(heads) == len(set(heads))
    parse = parse_text if form is PROMETHEUS_TEXT else parse_openmetrics
    families = {family.name: family for family in parse(text)}
    lags = [sample.labels["cluster"] for sample in families["koff_group_lag"].samples]
    assert lags == ["b", "b", "a", "c", "c", "c"]
    up = {sample.labels["cluster"]: sample.value for sample in families["koff_up"].samples}
    assert up == {"a": 1, "b": 1, "c": 1, "empty": 0}
    for name in ("koff_build_info", "process_start_time_seconds"):
        assert len(families[name].samples) == 1, name


def test_the_series_of_a_cluster_are_the_same_with_and_without_other_clusters():
    views = [take_view(fill_tracker(size), name) for name, size in (("a", 1), ("b", 2))]
    together = [line for line in render(Source(*views)).splitlines() if 'cluster="' in line]
    alone = [line for view in views for line in render(Source(view)).splitlines() if 'cluster="' in line]
    assert sorted(together) == sorted(alone)
    assert len(alone) > 30


def test_labels_of_a_cluster_are_on_all_its_series():
    plain = take_view(fill_tracker(), "a")
    text = render(Source(label(plain, region='e"u', team="x"), take_view(fill_tracker(), "b")))
    series = [sample for family in parse_text(text) for sample in family.samples]
    of_a = [sample for sample in series if sample.labels.get("cluster") == "a"]
    assert {(s.labels["region"], s.labels["team"]) for s in of_a} == {('e"u', "x")}
    assert len(of_a) == sum(sample.labels.get("cluster") == "b" for sample in series)
    assert not any("region" in sample.labels for sample in series if sample.labels.get("cluster") != "a")


def test_new_labels_are_on_rows_whose_labels_were_kept():
    view, exposition = take_view(fill_tracker(), "a"), Exposition()
    assert "region" not in b"".join(exposition.render_chunks(view)).decode()
    assert (
        'cluster="a",region="eu",group="g"'
        in b"".join(exposition.render_chunks(label(view, region="eu"))).decode()
    )


def test_families_come_in_their_order_also_if_only_one_cluster_has_them():
    views = take_view(fill_tracker(), "a"), EMPTY
    for order in (views, views[::-1]):
        heads = list_heads(b"".join(Exposition(EVERYTHING).render_chunks(*order)).decode())
        assert heads == [family.name for family in FAMILIES if family.name in heads]
        assert {"koff_group_lag", "koff_rows_withheld"} <= set(heads)


def test_the_body_is_kept_until_one_of_the_views_is_newer():
    tracker = fill_tracker()
    a, b = take_view(tracker, "a"), take_view(tracker, "b")
    source = Source(a, b)
    renderer = Renderer(source)
    body = renderer.render(PROMETHEUS_TEXT)
    assert renderer.render(PROMETHEUS_TEXT) is body
    newer = take_view(tracker, "b")
    source.views = (a, newer)
    body, before = renderer.render(PROMETHEUS_TEXT), body
    assert body is not before
    source.views = (a,)
    assert 'cluster="b"' not in zlib.decompress(renderer.render(PROMETHEUS_TEXT).gzipped, 31).decode()


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
def test_readyz_says_which_cluster_is_not_ready(ready, status):
    source = Source(take_view(fill_tracker(), "a"), EMPTY)
    source.readiness = Readiness(ready, "a: ready\nempty: not ready: away")
    with Server(source, ServeConf("127.0.0.1:0")) as server:
        got, _, body = request(server, "/readyz")
    assert (got, body.decode()) == (status, "a: ready\nempty: not ready: away\n")
