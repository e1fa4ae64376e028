"""The command line, one file for each command."""

import os

# Before anything imports numpy, which starts these threads when it is loaded. koff does not need them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from koff.cli.root import main

__all__ = ["main"]
