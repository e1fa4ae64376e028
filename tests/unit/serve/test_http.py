"""The server: one view for each response, and what is sent when there is none."""

import zlib

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from koff.lag import Reason
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.tracker import Tracker
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from tests.unit.serve.requests import request
from tests.unit.serve.views import READY, Source, build_view, fill_tracker, take_view, withhold

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def get_text(server: Server, path: str) -> tuple[int, str]:
    status, _, body = request(server, path)
    return status, body.decode()


def read_values(body: str) -> dict[str, float]:
    """The sum of the series of each name."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0) + sample.value
    return values


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
def test_a_response_takes_one_view(server, source, path):
    assert request(server, path)[0] == 200
    assert source.taken == 1
    request(server, path, method="HEAD")
    assert source.taken == 2


def test_paths_that_need_no_view_take_none(server, source):
    assert request(server, "/healthz")[0] == 200
    assert request(server, "/")[0] == 200
    assert request(server, "/other")[0] == 404
    assert source.taken == 0


def test_koffs_own_metrics_are_those_of_the_view_that_the_rows_are_of(server, source):
    tracker = fill_tracker()
    down = withhold(tracker, {("g", "t", 0): Reason.END_NOT_CURRENT})
    down = build_view(down.snapshot, readiness=Readiness(False, "not ready: no route"))
    source.later = [take_view(tracker), down, take_view(tracker)]
    seen = []
    for _ in range(3):
        values = read_values(get_text(server, "/metrics")[1])
        seen.append((values["koff_up"], values.get("koff_group_lag"), values["koff_rows_withheld"]))
    assert seen == [(1, 6, 0), (0, None, 1), (1, 6, 0)]


def test_every_number_about_the_monitor_is_served(server, source):
    stats = MonitorStats(
        records={"OffsetCommit": 7},
        undecodable=1,
        skipped={"record: ValueError": 2},
        behind=3,
        held_back_records=4,
        held_back_s=5.5,
        backfill_remaining=6,
        input_ages_s={"end_offsets": 7.5},
        requests={"offsets": 10},
        rows=9,
        withheld=8,
        source="coordinators",
        up=False,
    )
    source.views = [ClusterView("c", Tracker().take_snapshot(), READY, stats)]
    body = get_text(server, "/metrics")[1]
    families = {family.name: family.samples for family in text_string_to_metric_families(body)}
    own = {name: samples[0] for name, samples in families.items() if name.startswith("koff_") and samples}
    for of_process in ("koff_build_info", "koff_webhook_requests", "koff_webhook_events_dropped"):
        del own[of_process]
    assert 0 < own.pop("koff_render_seconds").value < 60
    assert {name: sample.value for name, sample in own.items()} == {
        "koff_rows_withheld": 0,
        "koff_reader_records": 7,
        "koff_reader_undecodable": 1,
        "koff_inputs_skipped": 2,
        "koff_up": 0,
        "koff_reader_behind_records": 3,
        "koff_reader_partitions_not_current": 0,
        "koff_reader_held_back_records": 4,
        "koff_reader_held_back_seconds": 5.5,
        "koff_reader_backfill_remaining_records": 6,
        "koff_input_age_seconds": 7.5,
        "koff_requests": 10,
        "koff_series": 2,
        "koff_series_left_out": 0,
        "koff_source_info": 1,
    }
    assert all(sample.labels["cluster"] == "c" for sample in own.values())
    assert own["koff_inputs_skipped"].labels["kind"] == "record: ValueError"
    assert own["koff_source_info"].labels["source"] == "coordinators"


def test_numbers_that_are_not_known_are_absent(server, source):
    source.views = [ClusterView("c", Tracker().take_snapshot(), READY, MonitorStats())]
    values = read_values(get_text(server, "/metrics")[1])
    assert "koff_up" in values
    assert not values.keys() & {
        "koff_reader_behind_records",
        "koff_input_age_seconds",
        "koff_group_lag",
    }


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
def test_without_a_view_there_are_no_numbers(server, source, path):
    source.failure = "the monitor gave no view within 10 s"
    assert get_text(server, path) == (503, "the monitor gave no view within 10 s\n")
    source.failure = None
    assert request(server, path)[0] == 200


def test_readyz_says_what_the_view_says(server, source):
    assert get_text(server, "/readyz") == (200, "ready\n")
    source.views = [build_view(Tracker().take_snapshot(), readiness=Readiness(False, "not ready: no route"))]
    assert get_text(server, "/readyz") == (503, "not ready: no route\n")
    assert get_text(server, "/healthz") == (200, "ok\n")


def test_healthz_fails_while_the_process_makes_no_progress(server, source):
    assert get_text(server, "/healthz") == (200, "ok\n")
    source.stall = "the monitor has made no progress for 31 s"
    assert get_text(server, "/healthz") == (503, "the monitor has made no progress for 31 s\n")
    source.stall = None
    assert get_text(server, "/healthz") == (200, "ok\n")


def test_a_compressed_body_is_the_same_as_a_plain_one(server, source):
    source.views = [take_view(fill_tracker(partitions=20_000))]

    def select_rows(body: bytes) -> list[bytes]:
        return [line for line in body.splitlines() if line.startswith(b"koff_group_")]

    _, headers, plain = request(server, "/metrics")
    assert headers["Content-Encoding"] is None
    _, headers, compressed = request(server, "/metrics", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert len(select_rows(plain)) > 10_000  # more than is inflated at once
    assert select_rows(plain) == select_rows(zlib.decompress(compressed, 31))


def test_weights_of_what_a_client_accepts_are_heeded(server):
    _, headers, body = request(
        server, "/metrics", Accept_Encoding="gzip;q=0", Accept=f"{OPENMETRICS};q=0, */*"
    )
    assert headers["Content-Encoding"] is None
    assert headers["Content-Type"].startswith("text/plain")
    assert b"koff_group_lag" in body
    assert headers["Vary"] == "Accept, Accept-Encoding"


def test_openmetrics_are_valid_to_the_end(server):
    body = request(server, "/metrics", Accept=OPENMETRICS)[2].decode()
    assert body.endswith("# EOF\n")
    assert "koff_group_lag" in {family.name for family in parse_openmetrics(body)}


def test_two_servers_do_not_share_anything():
    sources = [Source(take_view(fill_tracker(), name)) for name in "ab"]
    with Server(sources[0], ServeConf("127.0.0.1:0")) as a, Server(sources[1], ServeConf("127.0.0.1:0")) as b:
        assert b'cluster="a"' in request(a, "/metrics")[2]
        assert b'cluster="b"' in request(b, "/metrics")[2]
