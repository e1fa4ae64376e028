"""The command line: one file a command."""

from koff.cli.root import main

__all__ = ["main"]
