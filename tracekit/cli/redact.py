"""``tracekit redact``: write a copy of a trace that is safe to share."""

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force, Quiet

RedactedPath = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where to; default TRACE's name with .redacted.json.gz."),
]
TraceFile = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="One rank's trace: .json, .gz, .zst or .zip, a URI, or - for stdin.",
        show_default=False,
    ),
]


def redact(trace: TraceFile, output: RedactedPath = None, force: Force = False, quiet: Quiet = False) -> None:
    """Write a copy of a trace without host, user, path, environment and stack texts; predictions stay the same.

    Example: tracekit redact trace.json.gz -o share.json.gz
    """
    from tracekit.cli.output import take_one_output
    from tracekit.redact import files
    from tracekit.render import redact as render
    from tracekit.render.screen import PlainText, make_console

    path = take_one_output(output) or files.choose_default_output(trace)
    removed = files.redact(trace, path, force=force)
    if not quiet:
        make_console(stderr=True).print(PlainText(render.render_removed(removed, str(path))), highlight=False)
