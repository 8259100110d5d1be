"""``python -m felb`` is the command line."""

from felb.cli import main

main()
