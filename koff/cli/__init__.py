"""The command line, one file for each command."""

import os

# This must run before numpy is imported: OpenBLAS starts its threads then, and koff does not need them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from koff.cli.root import main

__all__ = ["main"]
