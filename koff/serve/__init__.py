"""Serves metrics and health over HTTP, from the views of a `ViewSource`. Sends no request to Kafka."""

from koff.serve.http import ServeConf, Server
from koff.serve.view import ClusterView, MonitorStats, NoProgress, Readiness, ViewSource

__all__ = ["ClusterView", "MonitorStats", "NoProgress", "Readiness", "ServeConf", "Server", "ViewSource"]
