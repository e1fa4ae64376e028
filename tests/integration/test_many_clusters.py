"""One `koff monitor` that watches several clusters, as koff.yaml says, and reads it again at SIGHUP."""

import itertools
import signal
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from koff.kafkatest import wait_until
from tests.kafka_groups import commit, make_lag
from tests.koff_process import Monitor, monitoring

pytestmark = pytest.mark.kafka


def write_file(path: Path, text: str) -> str:
    file = path / "koff.yaml"
    file.write_text(textwrap.dedent(text))
    return str(file)


def read_lags(monitor: Monitor) -> dict[tuple[str, str], float]:
    """The total lag by cluster and group."""
    totals = monitor.metrics().get("koff_group_total_lag", {})
    return {(labels[0], labels[-1]): lag for labels, lag in totals.items()}


def reload(monitor: Monitor) -> None:
    name, before = "the configuration was read again", len(monitor.events("the configuration was read again"))
    monitor.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(monitor.events(name)) > before, what="the reload")


def test_three_clusters_of_which_one_is_down(more_kafka, tmp_path):
    first, second, third = more_kafka(), more_kafka(), more_kafka()
    make_lag(first, "g", committed=4)
    make_lag(second, "g", committed=7)
    third_topic = make_lag(third, "late", committed=1)
    third.kill()
    file = write_file(
        tmp_path,
        f"""
        clusters:
          - {{name: first, brokers: "{first.bootstrap}", labels: {{region: eu}}}}
          - {{name: second, brokers: "{second.bootstrap}"}}
          - {{name: third, brokers: "{third.bootstrap}"}}
        """,
    )
    with monitoring(None, "--config", file) as monitor:
        monitor.wait_until_ready()
        wait_until(lambda: "third: not ready: cannot reach" in monitor.get("/readyz")[1], what="the third")
        status, text = monitor.get("/readyz")
        assert status == 200
        lines = text.splitlines()
        assert lines[:3] == ["ready: 2 of 3 clusters", "first: ready", "second: ready"]
        assert lines[3].startswith("third: not ready: cannot reach Kafka at")
        wait_until(lambda: read_lags(monitor) == {("first", "g"): 6, ("second", "g"): 3}, what="the lags")
        assert monitor.metrics()["koff_up"] == {("first", "eu"): 1, ("second",): 1, ("third",): 0}
        assert monitor.get("/healthz") == (200, "ok\n")

        # One that dies affects no other.
        second.kill()
        wait_until(lambda: monitor.metrics()["koff_up"][("second",)] == 0, what="koff_up 0")
        assert monitor.get("/readyz")[0] == 200
        assert read_lags(monitor) == {("first", "g"): 6}

        # One that comes is watched from then on.
        third.restart()
        wait_until(lambda: read_lags(monitor).get(("third", "late")) == 9, timeout_s=60, what="the third")
        commit(third, "late", (third_topic, 0, 10))
        wait_until(lambda: read_lags(monitor).get(("third", "late")) == 0, what="a commit in the third")
    assert "third" in {line["cluster"] for line in monitor.events("waiting")}
    assert {line["cluster"] for line in monitor.events("connected")} == {"first", "second", "third"}


def test_a_reload_applies_filters_labels_and_clusters_and_keeps_the_state(more_kafka, kafka, tmp_path):
    own = more_kafka()
    make_lag(own, "payments", committed=4)
    make_lag(own, "orders", committed=7)

    def configure(cluster: str, *others: str) -> str:
        named = [f'name: own, brokers: "{own.bootstrap}"{cluster}', *others]
        return write_file(tmp_path, "clusters:\n" + "".join(f"  - {{{each}}}\n" for each in named))

    file = configure(", groups: ^pay")
    with monitoring(None, "--config", file) as monitor:
        monitor.wait_until_ready()
        wait_until(lambda: read_lags(monitor) == {("own", "payments"): 6}, what="the group of the filter")

        # Filters and labels: koff has the state, and does not connect again.
        started = len(monitor.events("connected"))
        configure(", labels: {team: x}, topics: .", f'name: session, brokers: "{kafka.bootstrap}"')
        reload(monitor)
        wait_until(
            lambda: read_lags(monitor).items() >= {("own", "payments"): 6, ("own", "orders"): 3}.items(),
            what="both groups",
        )
        assert ("own", "x") in monitor.metrics()["koff_up"]
        wait_until(lambda: ("session",) in monitor.metrics()["koff_up"], what="the new cluster")
        wait_until(lambda: len(monitor.events("connected")) > started, what="its connection")
        assert [line["cluster"] for line in monitor.events("connected")] == ["own", "session"]

        # A file that is wrong changes nothing.
        (tmp_path / "koff.yaml").write_text("clusters: [{name: own}]")
        monitor.process.send_signal(signal.SIGHUP)
        wrong = "the configuration is wrong, and is not applied"
        wait_until(lambda: monitor.events(wrong), what="the error")
        assert "koff.yaml, line 1: clusters[0] has no brokers" in monitor.events(wrong)[0]["why"]
        assert ("own", "x") in monitor.metrics()["koff_up"]

        # A cluster that goes takes its series along.
        configure("")
        reload(monitor)
        # A view from before the reload may be served while it is fresh.
        wait_until(lambda: set(monitor.metrics()["koff_up"]) == {("own",)}, what="one cluster without labels")


def test_shards_share_the_groups_of_a_cluster_and_a_sidecar_has_its_own_group_only(more_kafka):
    kafka = more_kafka()
    groups = {f"group-{number}" for number in range(12)}
    topics = {group: make_lag(kafka, group, committed=4) for group in groups}
    found = []
    for number in range(2):
        with monitoring(kafka.bootstrap, "--cluster-name", "c", "--shard", f"{number}/2") as monitor:
            monitor.wait_until_ready()
            lags = read_lags(monitor)
            assert set(lags.values()) == {6}
            found.append({group for _, group in lags})
            shown = {labels[:3] for labels in monitor.metrics()["koff_partition_end_offset"]}
            assert shown == {("c", f"{number}/2", topics[group]) for group in found[-1]}
    assert found[0] | found[1] == groups
    assert not found[0] & found[1]
    with monitoring(kafka.bootstrap, "--cluster-name", "c", "--group", "group-1") as monitor:
        monitor.wait_until_ready()
        wait_until(lambda: read_lags(monitor) == {("c", "group-1"): 6}, what="the lag of the group")
        commit(kafka, "group-1", (topics["group-1"], 0, 9))
        wait_until(lambda: read_lags(monitor) == {("c", "group-1"): 1}, what="its commit")
        ends = {labels[1] for labels in monitor.metrics()["koff_partition_end_offset"]}
        assert ends == {topics["group-1"]}


def test_reloads_under_load_disturb_no_scrape(kafka, tmp_path):
    topics = {group: make_lag(kafka, group, committed=4) for group in ("loaded-kept", "loaded-filtered")}
    rules = ["^loaded-", "^loaded-kept"]

    def configure(number: int) -> str:
        named = f'name: c, brokers: "{kafka.bootstrap}", groups: {rules[number % 2]}'
        return write_file(tmp_path, f"clusters: [{{{named}}}]")

    with monitoring(None, "--config", configure(0)) as monitor, ThreadPoolExecutor(6) as clients:
        monitor.wait_until_ready()
        everything = {("c", group): 6.0 for group in topics}
        wait_until(lambda: read_lags(monitor) == everything, what="both groups")
        is_over = threading.Event()
        counts = [0] * 6

        def scrape(client: int) -> None:
            while not is_over.is_set():
                found = read_lags(monitor)
                assert found in (everything, {("c", "loaded-kept"): 6.0}, {}), found
                assert monitor.get("/healthz")[0] == 200
                counts[client] += 1

        scrapes = [clients.submit(scrape, client) for client in range(len(counts))]
        try:
            for number in itertools.count(1):
                configure(number)
                reload(monitor)
                shows_all = number % 2 == 0
                is_enough = number >= 10 and min(counts) > 5
                if (is_enough and shows_all) or any(each.done() for each in scrapes):
                    break
        finally:
            is_over.set()
        for each in scrapes:
            each.result()
        wait_until(lambda: read_lags(monitor) == everything, what="the last configuration")
        assert len(monitor.events("connected")) == 1  # no reload has touched the connection
