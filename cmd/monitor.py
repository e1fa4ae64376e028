"""Launches `koff monitor` from a checkout or a container."""

from koff.cli.monitor import monitor

if __name__ == "__main__":
    monitor(auto_envvar_prefix="KOFF_MONITOR")
