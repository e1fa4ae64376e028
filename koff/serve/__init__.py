"""Serves metrics and health over HTTP, from a `View`. Sends no request to Kafka."""

from koff.serve.http import ServeConf, Server
from koff.serve.view import MonitorStats, Readiness, View

__all__ = ["MonitorStats", "Readiness", "ServeConf", "Server", "View"]
