"""Options shared by several commands; the same name means the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """Format of a report; also the suffix of its file."""

    HTML = "html"
    JSON = "json"
    MD = "md"
    XLSX = "xlsx"
    PARQUET = "parquet"
    CSV = "csv"
    TXT = "txt"


def _check_size(memory: str | None) -> str | None:
    """Return the size unchanged if it is one."""
    from tracekit.errors import TracekitError
    from tracekit.ingest.memory import parse_memory_size

    try:
        parse_memory_size(memory)
    except TracekitError as error:
        raise typer.BadParameter(str(error)) from error
    return memory


TRACES_HELP = "PyTorch profiler traces of one job: .json, .gz, .zst, .zip; a directory, glob, URI, or - for stdin."
Traces = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE",
        help=TRACES_HELP,
        show_default=False,
    ),
]
TracesOrProgram = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE",
        help=f"{TRACES_HELP} Or a program that never ran: FILE.py:FUNCTION, or the config.json of a Hugging Face "
        "model.",
        show_default=False,
    ),
]
Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="N", min=0, help="Measure one rank; default all, together.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Decode anew and don't cache.")]
Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", callback=_check_size, help="The most that a trace may take, such as 2G."),
]
Stacks = Annotated[
    bool, typer.Option("--stacks", help="Also read Python's calls (with_stack=True): time by module, Python lines.")
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=0, help="Kernels to list.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Format = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format",
        metavar="FORM",
        help=f"What to print, or to write to the output: {', '.join(OutputFormat)}; default by its suffix.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Also write a file, in the form that its suffix names."),
]
WithDetails = Annotated[
    bool,
    typer.Option("--with-details", help="Also write paths, hosts, the command line, prices and dollars to the output."),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite the output file.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also the dependency graph and its constants.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
