"""A real Prometheus scrapes koff: in plain, and over TLS with a password."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koff.kafkatest import free_ports, wait_until
from koff.serve.access import AccessConf
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.unit.serve.certificates import PASSWORD, PASSWORD_HASH, get_authority, write_server_files
from tests.unit.serve.requests import request
from tests.unit.serve.views import EVERYTHING, Source, fill_tracker, take_view

CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: plain
    static_configs: [{{targets: ["{plain}"]}}]
  - job_name: encrypted
    scheme: https
    tls_config: {{ca_file: {folder}/ca.pem}}
    basic_auth: {{username: prometheus, password: {password}}}
    static_configs: [{{targets: ["{encrypted}"]}}]
  - job_name: intruder
    scheme: https
    tls_config: {{ca_file: {folder}/ca.pem}}
    static_configs: [{{targets: ["{encrypted}"]}}]
"""


@contextmanager
def running_prometheus(folder: Path, config: str) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Yields a function that returns the results of a query."""
    (folder / "prometheus.yml").write_text(config)
    (port,) = free_ports(1)
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)

    def query(expression: str) -> list[dict[str, Any]]:
        sent = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/api/v1/query?{sent}", timeout=60
            ) as response:
                return json.load(response)["data"]["result"]
        except OSError:  # it is starting
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            return []

    try:
        yield query
    finally:
        process.kill()
        process.wait(60)


def read_series(server: Server) -> dict[tuple[tuple[str, str], ...], float]:
    """What /metrics has: values by name and labels. An empty label is none for Prometheus."""
    text = request(server, "/metrics")[2].decode()
    return {
        tuple(
            sorted(
                (name, value) for name, value in {"__name__": sample.name, **sample.labels}.items() if value
            )
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus")
def test_prometheus_stores_the_same_series_in_plain_and_over_tls_with_a_password(tmp_path):
    users = f"basic_auth_users: {{prometheus: {PASSWORD_HASH}}}\n"
    (tmp_path / "web.yml").write_text(write_server_files(tmp_path) + users)
    get_authority().cert_pem.write_to_path(tmp_path / "ca.pem")
    source, anywhere = Source(take_view(fill_tracker(partitions=20))), "127.0.0.1:0"
    with (
        Server(source, ServeConf(anywhere), EVERYTHING) as plain,
        Server(source, ServeConf(anywhere, AccessConf(tmp_path / "web.yml")), EVERYTHING) as encrypted,
    ):
        targets = {"plain": plain.url.partition("//")[2], "encrypted": encrypted.url.partition("//")[2]}
        config = CONFIG.format(folder=tmp_path, password=PASSWORD, **targets)
        expected = {
            series: value
            for series, value in read_series(plain).items()
            if dict(series)["__name__"].startswith(("koff_group", "koff_topic", "koff_partition", "koff_up"))
        }
        assert len(expected) > 50

        with running_prometheus(tmp_path, config) as query:

            def list_up() -> dict[str, str]:
                return {found["metric"]["job"]: found["value"][1] for found in query("up")}

            up = {"plain": "1", "encrypted": "1", "intruder": "0"}
            wait_until(lambda: list_up() == up, timeout_s=60, what="the scrapes")

            def read_stored(job: str) -> dict[tuple[tuple[str, str], ...], float]:
                stored = {}
                for found in query(f'{{job="{job}",__name__=~"koff_(group|topic|partition|up).*"}}'):
                    labels = {
                        name: text
                        for name, text in found["metric"].items()
                        if name not in ("job", "instance")
                    }
                    stored[tuple(sorted(labels.items()))] = float(found["value"][1])
                return stored

            for job in targets:
                # Not once: a scrape that takes longer than a second is a failure, and leaves nothing.
                wait_until(lambda job=job: read_stored(job) == expected, timeout_s=60, what=f"all of {job}")  # type: ignore[misc]
            assert not query('{job="intruder",__name__=~"koff_.*"}')
