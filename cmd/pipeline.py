"""Starts `koff pipeline` from a checkout, a container or spark-submit."""

import sys

from koff.cli import main

if __name__ == "__main__":
    main(["pipeline", *sys.argv[1:]], prog_name="koff")
