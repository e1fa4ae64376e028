"""The queries of the dashboards and of the rules, in a real Prometheus that scrapes koff on live groups."""

import itertools
import re
import shutil
from pathlib import Path

import pytest

from koff.kafkatest import KafkaCluster, wait_until
from tests.integration.test_causes import accept
from tests.kafka_groups import member, produce
from tests.koff_process import monitoring
from tests.unit.deploy.test_dashboards import BOARDS, list_queries
from tests.unit.deploy.test_rules import RULES, read_rules
from tests.unit.serve.test_prometheus import running_prometheus

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: koff
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus")
def test_each_query_of_the_dashboards_and_each_recording_rule_returns_data(
    kafka: KafkaCluster, tmp_path: Path
):
    topic = kafka.create_topic(partitions=2)
    group = f"g-{topic}"
    for partition in range(2):
        produce(kafka, topic, 20, partition=partition)
    with (
        monitoring(None, "--config", accept(tmp_path, kafka, 60)) as monitor,
        member(kafka, group, topic, client_id="dashboards") as consumer,
    ):
        monitor.wait_until_ready()
        target = monitor.url.partition("//")[2]
        with running_prometheus(tmp_path, CONFIG.format(rules=RULES, target=target)) as query:
            values = {"cluster": ".*", "group": group, "topic": topic}
            missing = [
                re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)
                for board in BOARDS.values()
                for expr in list_queries(board)
                if not expr.startswith("label_values(")
            ] + [rule["record"] for rule in read_rules() if "record" in rule]
            assert len(missing) > 40

            committed = itertools.count(5)

            def has_data_for_all() -> bool:
                # More is produced and committed, or rates would have nothing to show.
                produce(kafka, topic, 1)
                consumer.commit(next(committed), 5)
                missing[:] = [expr for expr in missing if not query(expr)]
                return not missing

            try:
                wait_until(has_data_for_all, timeout_s=240, every_s=0.5)
            except TimeoutError:
                raise AssertionError("no data for:\n" + "\n".join(missing)) from None
