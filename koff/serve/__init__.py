"""What koff shows over HTTP. Takes a `View`; asks Kafka nothing itself."""

from koff.serve.http import ServeConf, Server
from koff.serve.view import MonitorStats, Readiness, View

__all__ = ["MonitorStats", "Readiness", "ServeConf", "Server", "View"]
