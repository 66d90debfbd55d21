"""Options shared by several commands; the same name means the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracekit.request.option import Panel


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
    int | None,
    typer.Option(
        "--ranks", metavar="N", min=0, help="Measure one rank; default all, together.", rich_help_panel=Panel.INPUT
    ),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Decode anew and don't cache.", rich_help_panel=Panel.INPUT)]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        callback=_check_size,
        help="The most that a trace may take, such as 2G.",
        rich_help_panel=Panel.INPUT,
    ),
]
Stacks = Annotated[
    bool,
    typer.Option(
        "--stacks",
        help="Also read Python's calls (with_stack=True): time by module, Python lines.",
        rich_help_panel=Panel.INPUT,
    ),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=0, help="Kernels to list.", rich_help_panel=Panel.OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=Panel.OUTPUT)]
Format = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format",
        metavar="FORM",
        help=f"What to print, or to write to the output: {', '.join(OutputFormat)}; default by its suffix. csv and "
        "parquet of predictions are a row for each target, with the kernels in a file beside it.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
Output = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also write a file, in the form that its suffix names; several may be given.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
ReportOutput = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Also write a file, in the form that its suffix names; several may be given. - prints Markdown instead, "
        "or what --format names.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
WithDetails = Annotated[
    bool,
    typer.Option(
        "--with-details",
        help="Also write paths, hosts, the command line, prices and dollars to the output.",
        rich_help_panel=Panel.OUTPUT,
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="Work rank by rank, for hundreds of ranks: local (this process), dask (processes of this machine), or a "
        "Dask scheduler such as tcp://scheduler:8786. Default: all ranks in memory, with all options.",
        rich_help_panel=Panel.INPUT,
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        help="With --engine, a path or URI that all workers reach, for the ranks' tables; default their own disks.",
        rich_help_panel=Panel.INPUT,
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite the output file.", rich_help_panel=Panel.OUTPUT)]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also the dependency graph and its constants.", rich_help_panel=Panel.OUTPUT),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.", rich_help_panel=Panel.OUTPUT)]
