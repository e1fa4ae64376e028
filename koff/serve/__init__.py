"""Serves metrics and health over HTTP, from the views of a `ViewSource`. Sends no request to Kafka."""

from koff.serve.access import AccessConf, read_rules
from koff.serve.http import Server
from koff.serve.listening import ServeConf
from koff.serve.metrics_conf import Granularity, MetricsConf
from koff.serve.view import ClusterView, MonitorStats, NoProgress, Readiness, Views, ViewSource

__all__ = [
    "AccessConf",
    "ClusterView",
    "Granularity",
    "MetricsConf",
    "MonitorStats",
    "NoProgress",
    "Readiness",
    "ServeConf",
    "Server",
    "ViewSource",
    "Views",
    "read_rules",
]
