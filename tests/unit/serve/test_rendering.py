"""Renders of /metrics: shared, kept, and no hindrance for other requests."""

from contextlib import ExitStack

from koff.kafkatest import wait_until
from koff.serve.metrics.exposition import Exposition
from tests.unit.serve.requests import SCRAPE, connect, hold_renders, request, wait_until_requested
from tests.unit.serve.views import fill_tracker, take_view


def test_an_error_while_rendering_is_logged_and_not_shown(server, monkeypatch, logged):
    def fail(*_: object, **__: object) -> None:
        raise ValueError("a fault of koff")

    with monkeypatch.context() as patched:
        patched.setattr(Exposition, "render_chunks", fail)
        status, headers, body = request(server, "/metrics")
    assert (status, body) == (500, b"Internal Server Error")
    assert headers["Content-Type"].startswith("text/plain")
    assert request(server, "/metrics")[0] == 200
    (line,) = logged()
    assert line["level"] == "error"
    assert "ValueError: a fault of koff" in line["exception"]


def test_health_and_readiness_do_not_wait_for_a_render(server, monkeypatch):
    with connect(server) as scrape:
        with hold_renders(monkeypatch) as begun:
            scrape.sendall(SCRAPE)
            wait_until(lambda: begun, what="the render")
            assert request(server, "/healthz")[0] == 200
            assert request(server, "/readyz")[0] == 200
            assert request(server, "/metrics", method="HEAD")[0] == 200
        assert scrape.recv(12) == b"HTTP/1.1 200"


def test_scrapes_that_come_during_a_render_share_the_next(server, source, monkeypatch):
    source.later = [take_view(fill_tracker()) for _ in range(20)]
    with ExitStack() as open_:
        with hold_renders(monkeypatch) as begun:
            scrapes = [open_.enter_context(connect(server, SCRAPE))]
            wait_until(lambda: begun, what="the render")
            scrapes += [open_.enter_context(connect(server, SCRAPE)) for _ in range(10)]
            wait_until_requested(server, 11)
            assert request(server, "/healthz")[0] == 200  # what was asked before waits for a render by now
        for scrape in scrapes:
            assert scrape.recv(12) == b"HTTP/1.1 200"
        assert len(begun) == 2
        assert source.taken == 2


def test_a_body_is_kept_for_as_long_as_its_view_is_the_newest(server, source, monkeypatch):
    one, other = take_view(fill_tracker()), take_view(fill_tracker())
    source.later = [one, one, one, other]
    with hold_renders(monkeypatch) as begun:
        pass  # renders are counted, and do not wait
    for _ in range(4):
        assert request(server, "/metrics")[0] == 200
    assert len(begun) == 2
