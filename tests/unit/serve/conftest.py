"""A server on loopback, of a source without a cluster: its files, its limits, and what it logs."""

import json
import sys
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from koff.cli.log_lines import set_up_logs
from koff.serve import access as access_module
from koff.serve import protocol as protocol_module
from koff.serve.access import AccessConf
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from tests.unit.serve.certificates import write_server_files
from tests.unit.serve.views import Source, fill_tracker, take_view

LONG_S = 3600.0
MORE_THAN_BUFFERS_HOLD = 60_000


@pytest.fixture
def source():
    return Source(take_view(fill_tracker()))


@pytest.fixture
def large(source):
    """A body that is larger than the buffers of a connection."""
    source.views = [take_view(fill_tracker(partitions=MORE_THAN_BUFFERS_HOLD))]


@pytest.fixture
def serve(source, tmp_path, monkeypatch):
    """Starts a server with these texts as its files web.yml and tokens. It looks for changes all the time."""
    monkeypatch.setattr(access_module, "LOOK_S", 0.02)
    with ExitStack() as open_:

        def start(web: str | None = None, tokens: str | None = None, **conf: Any) -> Server:
            files: dict[str, Path] = {}
            for name, text in (("web.yml", web), ("tokens", tokens)):
                if text is not None:
                    files[name] = tmp_path / name
                    files[name].write_text(text)
            access = AccessConf(files.get("web.yml"), files.get("tokens"), **conf)
            return open_.enter_context(Server(source, ServeConf("127.0.0.1:0", access)))

        yield start


@pytest.fixture
def server(serve):
    return serve()


@pytest.fixture(params=["plain", "tls"])
def either_server(request, serve, tmp_path):
    """A server without TLS, and one with it."""
    return serve(write_server_files(tmp_path) if request.param == "tls" else None)


@pytest.fixture
def limits(monkeypatch):
    """Sets limits of the protocol; those that are not named can not be the reason for what happens."""

    def set_limits(**named: float) -> None:
        for name, value in {"REQUEST_S": LONG_S, "RESPONSE_S": LONG_S, **named}.items():
            monkeypatch.setattr(protocol_module, name, value)

    return set_limits


@pytest.fixture
def logged(monkeypatch):
    """What was logged until now, without debug. Each line of standard error must be JSON."""
    written = StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    set_up_logs("json", "debug")

    def read_lines() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in written.getvalue().splitlines()]
        return [line for line in lines if line["level"] != "debug"]

    yield read_lines
    read_lines()
