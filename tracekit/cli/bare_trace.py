"""``tracekit TRACE``: do what is most likely meant with a file alone."""

from collections.abc import Sequence
from pathlib import Path

TRACE_SUFFIXES = (".json", ".gz", ".zst", ".zip")
PAGE_SUFFIXES = (".html",)
TARGET_OPTIONS = ("-g", "--gpu", "--cluster")


def is_input(text: str) -> bool:
    """Return whether an argument names a file rather than a command."""
    path = Path(text)
    return text == "-" or "://" in text or path.suffix in TRACE_SUFFIXES or "*" in text or path.exists()


def choose_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a command in front, and say which.

    A page is viewed. A trace is predicted where there are targets, on the command line or in the configuration, and
    else reported.
    """
    from tracekit.cli.config_file import read_config
    from tracekit.cli.output import say

    file, *options = arguments
    if Path(file).suffix in PAGE_SUFFIXES:
        command = "view"
    elif read_config().targets or any(one.startswith(TARGET_OPTIONS) for one in options):
        command = "predict"
    else:
        command = "report"
    say(f"tracekit {command} {file}")
    return [command, *arguments]
