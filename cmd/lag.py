"""Starts `koff lag` from a checkout or a container."""

import sys

from koff.cli import main

if __name__ == "__main__":
    main(["lag", *sys.argv[1:]], prog_name="koff")
