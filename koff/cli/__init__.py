"""The command line, one file for each command."""

from koff.cli.root import main

__all__ = ["main"]
