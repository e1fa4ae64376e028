"""What koff shows over HTTP. Takes a `View`; asks Kafka nothing itself."""

from koff.serve.http import ServeConf, Server
from koff.serve.view import ReaderStats, Readiness, View

__all__ = ["ReaderStats", "Readiness", "ServeConf", "Server", "View"]
