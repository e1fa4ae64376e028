"""`koff health`: what a probe of a container gets."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from koff.cli.root import main
from koff.kafkatest import free_ports
from koff.serve.access import AccessConf
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.view.cluster_view import Readiness
from tests.unit.serve.certificates import get_authority, require_clients, write_server_files
from tests.unit.serve.requests import find_address
from tests.unit.serve.views import Source, fill_tracker, take_view


@pytest.fixture
def source() -> Source:
    return Source(take_view(fill_tracker()))


@pytest.fixture
def port(source: Source) -> Iterator[int]:
    # The log of the server would go to the output of the command.
    with capture_logs(), Server(source, ServeConf("127.0.0.1:0")) as server:
        yield find_address(server)[1]


@contextmanager
def listening() -> Iterator[int]:
    """The port of a socket to which one can connect, and which never responds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield silent.getsockname()[1]


def ask(*args: str) -> tuple[int, str]:
    """The exit code and the output, which is one line."""
    result = CliRunner().invoke(main, ["health", "--timeout", "60", *args])  # the last --timeout counts
    assert result.output.endswith("\n")
    return result.exit_code, result.output[:-1]


def test_a_monitor_that_makes_progress_is_healthy(port: int):
    assert ask("--listen", f"127.0.0.1:{port}") == (0, "ok")


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_a_monitor_on_all_addresses_is_asked_on_this_machine(port: int, host: str):
    assert ask("--listen", f"{host}:{port}")[0] == 0


def test_a_monitor_that_stands_still_is_not_healthy(source: Source, port: int):
    source.stall = "the monitor has made no progress for 31 s"
    assert ask("--listen", f"127.0.0.1:{port}") == (1, "the monitor has made no progress for 31 s")


def test_a_monitor_that_is_healthy_may_not_be_ready(source: Source, port: int):
    not_ready = Readiness(False, "partition 3 is not read yet")
    source.views = [replace(source.views[0], readiness=not_ready)]
    assert ask("--ready", "--listen", f"127.0.0.1:{port}") == (1, "partition 3 is not read yet")
    assert ask("--listen", f"127.0.0.1:{port}")[0] == 0


def test_a_monitor_that_does_not_respond_is_not_healthy():
    with listening() as port:
        code, text = ask("--timeout", "0.2", "--listen", f"127.0.0.1:{port}")
    assert (code, text) == (1, f"koff monitor at 127.0.0.1:{port} does not respond within 0.2 s")


def test_no_monitor_is_not_healthy():
    (port,) = free_ports(1)
    code, text = ask("--listen", f"127.0.0.1:{port}")
    assert code == 1
    assert "Connection refused" in text


def test_what_is_no_http_response_is_not_healthy(port: int):
    code, text = ask("--tls", "--listen", f"127.0.0.1:{port}")
    assert code == 1
    assert text.startswith(f"no response from koff monitor at 127.0.0.1:{port}: ")


@pytest.fixture
def strict_port(source: Source, tmp_path: Path) -> Iterator[int]:
    """The port of a monitor that requires a client certificate."""
    web = tmp_path / "web.yml"
    web.write_text(write_server_files(tmp_path) + require_clients(tmp_path))
    with capture_logs(), Server(source, ServeConf("127.0.0.1:0", AccessConf(web))) as server:
        yield find_address(server)[1]


def test_a_monitor_may_require_a_client_certificate(strict_port: int, tmp_path: Path):
    certificate = get_authority().issue_cert("probe@example.org")
    both, key = tmp_path / "client.pem", tmp_path / "client.key"
    certificate.private_key_and_cert_chain_pem.write_to_path(both)
    address = ("--listen", f"127.0.0.1:{strict_port}")
    assert ask("--tls", *address)[0] == 1
    assert ask("--client-cert", str(both), *address) == (0, "ok")
    # Secrets of Kubernetes have the key in a file of its own.
    both.write_bytes(certificate.cert_chain_pems[0].bytes())
    certificate.private_key_pem.write_to_path(key)
    assert ask("--client-cert", str(both), "--client-key", str(key), *address) == (0, "ok")


def test_a_client_certificate_that_cannot_be_used_is_named(strict_port: int, tmp_path: Path):
    address = ("--listen", f"127.0.0.1:{strict_port}")
    absent = tmp_path / "absent.pem"
    code, text = ask("--client-cert", str(absent), *address)
    assert (code, text) == (1, f"cannot use the client certificate {absent}: No such file or directory")
    absent.write_text("nonsense")
    code, text = ask("--client-cert", str(absent), *address)
    assert code == 1
    assert text.startswith(f"cannot use the client certificate {absent}: ")


def test_the_address_is_that_of_the_monitor_s_own_variable(port: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KOFF_MONITOR_LISTEN", f"127.0.0.1:{port}")
    assert ask() == (0, "ok")
    monkeypatch.setenv("KOFF_HEALTH_LISTEN", "127.0.0.1:1")
    assert ask()[1].startswith("no response from koff monitor at 127.0.0.1:1: ")


def test_a_koff_of_this_user_is_found_wherever_it_listens(port: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("koff.cli.health.find_listen_address", lambda: f"127.0.0.1:{port}")
    assert ask("--find", "--listen", "127.0.0.1:1") == (0, "ok")
    monkeypatch.setattr("koff.cli.health.find_listen_address", lambda: None)
    assert ask("--find", "--listen", f"127.0.0.1:{port}") == (0, "ok")


FORBIDDEN = {
    *("confluent_kafka", "http.client", "kio", "numpy", "pydantic", "rich", "ssl", "starlette", "structlog"),
    *("koff.client", "koff.monitor", "koff.serve.access", "koff.serve.listening", "koff.tracker", "textual"),
    *("uvicorn", "yaml"),
}
PROBE = f"""
import sys, time
from koff.cli import main
try:
    main.main(["health", "--listen", "127.0.0.1:1"])
except SystemExit:
    with open("/proc/self/status") as status:
        (peak,) = [line.split()[1] for line in status if line.startswith("VmHWM:")]
    print("imported:", *{FORBIDDEN} & {{*sys.modules}})
    print(peak, time.process_time())
"""
"""Ends with the names of forbidden modules, the highest memory in KiB, and the seconds of CPU."""


def test_a_probe_costs_little():
    """Kubernetes runs it every few seconds, in a container with little CPU and memory."""
    shown = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    response, imported, used = shown.stdout.splitlines()
    assert "Connection refused" in response
    assert imported == "imported:"
    memory_kib, cpu_s = map(float, used.split())
    assert memory_kib < 20 << 10
    assert cpu_s < 0.4  # 0.06 s on a machine that does nothing else
