"""The command line, one file for each command."""

import os
import sys

# This must run before numpy is imported: OpenBLAS starts its threads then, and koff does not need them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# structlog imports rich, which came with textual, for tracebacks that koff does not use: a tenth of a second.
if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # None: importing it fails
    import structlog  # noqa: F401

    del sys.modules["rich"]

from koff.cli.root import main

__all__ = ["main"]
