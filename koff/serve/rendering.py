"""Rendered bodies of /metrics: compressed, and shared by all who ask for the same."""

import time
import weakref
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import cramjam
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from koff.serve.accepted import OPENMETRICS, Format
from koff.serve.events.webhook import WebhookCounts
from koff.serve.metrics.conf import MetricsConf
from koff.serve.metrics.exposition import Exposition
from koff.serve.metrics.own import ProcessNumbers
from koff.view.cluster_view import ClusterView, LastReload, Views, ViewSource

_PIECE_BYTES, _PLAIN_BYTES = 1 << 16, 1 << 18
"""So much of a compressed body, and of a plain one, is sent at once. A client's turn ends with a piece."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body in gzip format, a tenth of its size as plain text."""

    gzipped: bytes
    plain_size: int

    def split(self) -> Iterator[bytes]:
        """The compressed body, in pieces."""
        for start in range(0, len(self.gzipped), _PIECE_BYTES):
            yield self.gzipped[start : start + _PIECE_BYTES]

    def inflate(self) -> Iterator[bytes]:
        """The plain body, in pieces: it is never in memory as a whole."""
        decompressor = zlib.decompressobj(31)
        for piece in self.split():
            rest = piece
            while rest:
                if plain := decompressor.decompress(rest, _PLAIN_BYTES):
                    yield plain
                rest = decompressor.unconsumed_tail
        if plain := decompressor.flush():
            yield plain


class Renderer:
    """Renders the newest views of a source. Not thread-safe.

    The last body of each format is kept for as long as the source gives the same views.
    """

    def __init__(
        self, source: ViewSource, conf: MetricsConf | None = None, webhooks: WebhookCounts | None = None
    ) -> None:
        self._source, self._webhooks = source, webhooks or WebhookCounts()
        self._exposition = Exposition(conf)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        # Only the loop that gave a view decides how long the view stays in memory.
        self._kept: dict[Format, tuple[list[weakref.ref[ClusterView]], LastReload | None, Body]] = {}

    def render(self, form: Format) -> Body:
        """All metrics of the newest views. Raises `NoProgress`."""
        taken = self._source.take_views()
        views = taken.clusters
        if form in self._kept:
            kept_views, reload, body = self._kept[form]
            if list(map(id, views)) == [id(kept()) for kept in kept_views] and reload == taken.reload:
                return body
            del self._kept[form], body  # two bodies would take twice the memory
        body = self._render_views(taken, form)
        self._kept[form] = [weakref.ref(view) for view in views], taken.reload, body
        return body

    def _render_views(self, taken: Views, form: Format) -> Body:
        # The fastest level: near Prometheus, time matters more than bytes. cramjam takes half of zlib's time.
        compressor, plain_size, begun = cramjam.gzip.Compressor(1), 0, list[Future[int]]()
        # cramjam does not hold the GIL: another thread compresses a chunk while the next one is rendered.
        with ThreadPoolExecutor(1, "koff-compress") as thread:
            for chunk in self._render_chunks(taken, form):
                plain_size += len(chunk)
                wait(begun)  # at most one chunk waits
                begun.append(thread.submit(compressor.compress, chunk))
        for each in begun:
            each.result()
        return Body(bytes(compressor.finish()), plain_size)

    def _render_chunks(self, taken: Views, form: Format) -> Iterator[bytes]:
        began_s, openmetrics = time.perf_counter(), form is OPENMETRICS
        yield from self._exposition.render_chunks(*taken.clusters, openmetrics=openmetrics)
        seconds = round(time.perf_counter() - began_s, 6)
        process = ProcessNumbers(seconds, self._webhooks, taken.tables, taken.reload)
        yield self._exposition.render_own(*taken.clusters, process=process, openmetrics=openmetrics)
        # Last: an OpenMetrics body ends with `# EOF`, which prometheus_client writes.
        yield form.encode(self._process)
