"""`python -m koff`."""

from koff.cli import main

main()
