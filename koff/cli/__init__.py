"""The command line: one file a command."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts them as it loads; koff has no use for them

from koff.cli.root import main

__all__ = ["main"]
