"""Launches `koff lag` from a checkout or a container."""

from koff.cli.lag import lag

if __name__ == "__main__":
    lag(auto_envvar_prefix="KOFF_LAG")
