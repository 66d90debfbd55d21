"""Run ``python -m tracekit``."""

from tracekit.cli.app import main

main()
