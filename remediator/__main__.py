"""``python -m remediator``: the command line, where the entry point is not on the path."""

from remediator.cli import main

main()
