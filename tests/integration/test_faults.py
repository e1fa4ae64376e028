"""`koff monitor` and `koff lag` before three brokers, of which one or all stall, delay, or are cut off.

A fault hides the rows that depend on the broker, and no other row. No served lag is older than the limit,
which is five end-offset intervals. When the fault ends, all rows are served again within a minute.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from koff.kafkatest import wait_until
from tests.fault_cluster import FaultCluster, fault_cluster
from tests.fault_proxy import FaultProxy
from tests.fault_scrapes import (
    ENDED_S,
    FOLLOWED_S,
    HIDDEN_S,
    LIMIT_S,
    RECOVERED_S,
    Page,
    Scrapes,
    check_lag_command,
    wait_for,
    wait_for_rows,
    watching,
)
from tests.kafka_groups import commit, produce
from tests.koff_process import run_koff

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
BROKERS = (1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long))
STOPPED_S = 25.0
"""A request that hangs takes longer."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[FaultCluster]:
    with fault_cluster() as whole:
        yield whole


@pytest.fixture(autouse=True)
def _restored(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends the test's faults, and waits until the shared cluster is whole again."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").restore()


def stall(proxy: FaultProxy) -> None:
    proxy.stall()


def cut(proxy: FaultProxy) -> None:
    proxy.cut()


def delay(proxy: FaultProxy) -> None:
    proxy.delay(2.0)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_stalled_broker_hides_only_the_rows_that_depend_on_it(cluster, broker):
    run_fault(cluster, broker, stall)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_broker_that_is_cut_off_hides_only_the_rows_that_depend_on_it(cluster, broker):
    run_fault(cluster, broker, cut)


def test_a_broker_that_is_slow_hides_no_row_of_another_broker(cluster):
    run_fault(cluster, 1, delay, may_serve_more=True)


@pytest.mark.thorough
def test_a_broker_whose_responses_alone_are_lost_hides_only_the_rows_that_depend_on_it(cluster):
    run_fault(cluster, 2, lambda proxy: proxy.stall("to_client"))


@pytest.mark.thorough
@pytest.mark.parametrize("begin", [stall, cut])
def test_with_coordinators_as_the_source_a_fault_hides_only_the_rows_that_depend_on_the_broker(
    cluster, begin
):
    run_fault(cluster, 1, begin, args=("--source", "coordinators"))


def run_fault(
    cluster: FaultCluster,
    broker: int,
    begin: Callable[[FaultProxy], None],
    *,
    may_serve_more: bool = False,
    args: tuple[str, ...] = (),
) -> None:
    with watching(cluster, *args) as monitor:
        wait_for(monitor, cluster, RECOVERED_S)
        monitor.wait_until_ready()  # rows are served before that
        stay = cluster.lags(without=broker)
        assert 0 < len(stay) < len(cluster.committed)
        with Scrapes(monitor, cluster) as scrapes:
            begin(cluster.proxy(broker))
            took = [wait_for(monitor, cluster, HIDDEN_S, without=broker, may_serve_more=may_serve_more)]
            for _ in range(3):
                cluster.advance()
                took.append(
                    wait_for(monitor, cluster, FOLLOWED_S, without=broker, may_serve_more=may_serve_more)
                )
        print(f"hidden and followed after (s): {[round(s, 1) for s in took]}")
        scrapes.check(stay=stay)
        with Scrapes(monitor, cluster) as recovering:
            cluster.proxy(broker).resume()
            print(f"recovered after {wait_for(monitor, cluster, RECOVERED_S):.1f} s")
            cluster.advance()
            wait_for(monitor, cluster, FOLLOWED_S)
        recovering.check(stay=stay)


def test_lost_connections_alone_hide_nothing(cluster):
    with watching(cluster) as monitor:
        wait_for(monitor, cluster, RECOVERED_S)
        with Scrapes(monitor, cluster) as scrapes:
            for _ in range(4):
                for proxy in cluster.proxies:
                    proxy.disconnect()
                cluster.advance()
                wait_for(monitor, cluster, FOLLOWED_S)
        scrapes.check(stay=cluster.committed)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_topic_that_is_made_while_a_broker_stalls_is_served(cluster, broker):
    group = next(row[0] for row in cluster.committed if cluster.coordinator(row[0]) != broker)
    with watching(cluster) as monitor:
        wait_for(monitor, cluster, RECOVERED_S)
        cluster.proxy(broker).stall()
        wait_for(monitor, cluster, HIDDEN_S, without=broker)
        with cluster.new_topic(3) as topic:
            partition = next(p for p, leader in cluster.kafka.leaders(topic).items() if leader != broker)
            produce(cluster.kafka, topic, 5, partition=partition)
            commit(cluster.kafka, group, (topic, partition, 2))
            row, began_s = (group, topic, partition), time.monotonic()
            wait_until(lambda: Page.fetch(monitor).lags.get(row) == 3, timeout_s=60, what="the new row")
            print(f"served after {time.monotonic() - began_s:.1f} s")


def test_while_all_brokers_stall_no_lag_is_served_and_koff_is_not_ready_and_stops_at_once(cluster):
    with watching(cluster) as monitor:
        wait_for(monitor, cluster, RECOVERED_S)
        monitor.wait_until_ready()
        with Scrapes(monitor, cluster) as scrapes:
            for proxy in cluster.proxies:
                proxy.stall()
            wait_until(lambda: monitor.get("/readyz")[0] == 503, what="503")
            wait_until(lambda: not Page.fetch(monitor).lags, what="no lag to be served")
            cluster.advance()
            page = Page.fetch(monitor)
            assert (page.lags, page.totals, page.up) == ({}, {}, 0)
            assert page.withheld == len(cluster.committed)
            ages_s = monitor.metrics()["koff_input_age_seconds"]
            assert ages_s[cluster.kafka.cluster_id, "end_offsets"] > LIMIT_S
        scrapes.check(stay=set(), ready=False)
        assert scrapes.slowest_s < STOPPED_S
        for proxy in cluster.proxies:
            proxy.resume()
        print(f"recovered after {wait_for(monitor, cluster, RECOVERED_S):.1f} s")
        monitor.wait_until_ready()
        cluster.advance()
        wait_for(monitor, cluster, FOLLOWED_S)

        # koff stops at once while they stall.
        for proxy in cluster.proxies:
            proxy.stall()
        wait_until(lambda: monitor.get("/readyz")[0] == 503, what="503")
        began_s = time.monotonic()
        assert monitor.stop() == 0, monitor.text
        assert time.monotonic() - began_s < STOPPED_S


@pytest.mark.thorough
@pytest.mark.parametrize("broker", BROKERS)
def test_all_rows_are_right_again_once_others_lead_what_a_frozen_broker_led(cluster, broker):
    node = cluster.kafka.nodes[broker - 1]
    with watching(cluster) as monitor:
        wait_for(monitor, cluster, RECOVERED_S)
        with Scrapes(monitor, cluster) as scrapes:
            node.pause()
            cluster.wait_until_led_by_others(broker)
            print(f"right after {wait_for(monitor, cluster, RECOVERED_S):.1f} s")
            cluster.advance()
            wait_for(monitor, cluster, FOLLOWED_S)
            node.resume()
            cluster.advance()
            wait_for(monitor, cluster, RECOVERED_S)
        scrapes.check(stay=set())


@pytest.mark.parametrize("broker", BROKERS)
def test_a_monitor_that_starts_while_a_broker_stalls_serves_all_other_rows(cluster, broker):
    cluster.proxy(broker).stall()
    with watching(cluster) as monitor:
        took_s = wait_for_rows(monitor, cluster, broker)
        print(f"served after {took_s:.1f} s")
        cluster.proxy(broker).resume()
        print(f"recovered after {wait_for(monitor, cluster, RECOVERED_S):.1f} s")
        monitor.wait_until_ready()
        cluster.advance()
        wait_for(monitor, cluster, FOLLOWED_S)


@pytest.mark.parametrize("broker", BROKERS)
def test_koff_lag_prints_what_is_known_while_a_broker_stalls_and_names_the_rest(cluster, broker):
    cluster.proxy(broker).stall()
    check_lag_command(cluster, broker)


def test_koff_lag_ends_in_time_while_all_brokers_stall(cluster):
    for proxy in cluster.proxies:
        proxy.stall()
    began_s = time.monotonic()
    result = run_koff("lag", "--brokers", cluster.kafka.proxied_bootstrap, "--timeout", "5")
    assert time.monotonic() - began_s < ENDED_S
    assert result.returncode == 1, result.stderr
    assert "cannot reach Kafka" in result.stderr
