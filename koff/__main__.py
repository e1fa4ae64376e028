"""`python -m koff`: the same as the command `koff`."""

from koff.cli import main

main()
