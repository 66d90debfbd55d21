"""The ``tracekit`` command: its verbs, and what becomes of errors."""

import errno
import io
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tracekit import __version__
from tracekit.cli import (
    cache,
    calibrate,
    clusters,
    compare,
    doctor,
    export,
    gpus,
    info,
    predict,
    record,
    redact,
    report,
    serve,
    sweep,
    view,
)
from tracekit.errors import TracekitError

EXIT_FAILURE = 1
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

OF_A_NAME = (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS)
"""Errors that a file's name brings about, wherever it was given."""


class Switches:
    """Help that shows a switch as one: typer writes ``<bool>`` behind it, as if it took a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
        return params


class Verb(Switches, TyperCommand):
    """One verb."""


class Verbs(Switches, TyperGroup):
    """All of them."""


app = typer.Typer(
    name="tracekit",
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How long a PyTorch iteration would take on another GPU, from the profiler traces of the one you have.",
    epilog="Exit codes: 0 fine, 1 the trace or a name is at fault, 2 wrong usage, 3 --fail-above exceeded, "
    "4 --strict not met, 70 a bug, 130 interrupted.",
)
app.command("record", cls=Verb, context_settings=record.PASS_ON)(record.record)
app.command("info", cls=Verb)(info.info)
app.command("report", cls=Verb)(report.report)
app.command("predict", cls=Verb)(predict.predict)
app.command("sweep", cls=Verb)(sweep.sweep)
app.command("compare", cls=Verb)(compare.compare)
app.command("export", cls=Verb)(export.export)
app.command("view", cls=Verb)(view.view)
app.command("doctor", cls=Verb)(doctor.doctor)
app.command("redact", cls=Verb)(redact.redact)
app.command("gpus", cls=Verb)(gpus.gpus)
app.command("clusters", cls=Verb)(clusters.clusters)
app.command("calibrate", cls=Verb)(calibrate.calibrate)
app.command("cache", cls=Verb)(cache.cache)
app.command("serve", cls=Verb)(serve.serve)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tracekit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line; expected failures end in one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except TracekitError as error:
        _fail(str(error), EXIT_FAILURE)
    except Exception as error:
        from predictors import PredictorError

        if isinstance(error, PredictorError):
            _fail(str(error), EXIT_FAILURE)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _fail("there is no space left where the output goes. Make room, and run it again.", EXIT_FAILURE)
        if isinstance(error, OSError) and error.errno in OF_A_NAME and error.filename is not None:
            _fail(f"{error.filename} can't be read or written: {error.strerror}.", EXIT_FAILURE)
        if _is_out_of_memory(error):
            _fail(
                "there is not enough memory. Allow more (ulimit -v, the container's limit), or read less.", EXIT_FAILURE
            )
        traceback.print_exc()
        _fail("this is a bug in tracekit; please report it with the lines above", EXIT_BUG)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, also where a library could not be loaded for want of it."""
    if error is None:
        return False
    ran_out = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return ran_out or "failed to map segment" in str(error) or _is_out_of_memory(error.__cause__ or error.__context__)


def _fail(message: str, code: int) -> None:
    print(f"tracekit: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(code)
