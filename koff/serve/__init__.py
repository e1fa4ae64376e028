"""Serves metrics, events and health over HTTP, from views of a `ViewSource`. Sends no request to Kafka."""

from koff.serve.access import AccessConf, read_rules
from koff.serve.events.watcher import Events, EventWatcher
from koff.serve.events.webhook import WebhookConf
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.serve.metrics_conf import Granularity, MetricsConf
from koff.serve.view import (
    ClusterView,
    MonitorStats,
    NoProgress,
    PipelineStats,
    Readiness,
    StoredTable,
    Views,
    ViewSource,
)

__all__ = [
    "AccessConf",
    "ClusterView",
    "EventWatcher",
    "Events",
    "Granularity",
    "MetricsConf",
    "MonitorStats",
    "NoProgress",
    "PipelineStats",
    "Readiness",
    "ServeConf",
    "Server",
    "StoredTable",
    "ViewSource",
    "Views",
    "WebhookConf",
    "read_rules",
]
