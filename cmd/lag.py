#!/usr/bin/env python3
"""Starts `koff lag` from a checkout or a container."""

import sys

try:
    from koff.cli import main
except ModuleNotFoundError as error:
    sys.exit(
        f"{error}: koff or a library of it is not installed for {sys.executable}. In the checkout, run "
        "`pip install .` in a virtual environment, and start this script with its python."
    )

if __name__ == "__main__":
    main(["lag", *sys.argv[1:]], prog_name="koff")
