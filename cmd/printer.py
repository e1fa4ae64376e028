"""Launches `koff printer` from a checkout or a container."""

from koff.cli.printer import printer

if __name__ == "__main__":
    printer(auto_envvar_prefix="KOFF_PRINTER")
