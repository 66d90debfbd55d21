"""The ``tracekit`` command: its subcommands and error handling."""

import errno
import gc
import io
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
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
from tracekit.errors import RequestError, TracekitError
from tracekit.escape import to_line, to_lines

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

GC_THRESHOLD = 200_000
"""New objects between two collections of cyclic garbage. Imports create 70,000 that live as long as the command; at
Python's 700, collections find next to nothing and take 4 % of a prediction's CPU time."""

PATH_ERRNOS = (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS)
"""Errors caused by a file's name, in any option or argument."""


class SwitchHelpMixin:
    """Mixin whose help shows a switch without a value: typer would write ``<bool>`` behind it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
        return params


class Subcommand(SwitchHelpMixin, TyperCommand):
    """A subcommand."""


class SubcommandGroup(SwitchHelpMixin, TyperGroup):
    """The group of all subcommands; its errors show wrong arguments as lines of text."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the arguments in front of the subcommand."""
        with _escape_usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the subcommand's arguments, and run it."""
        with _escape_usage_errors():
            return super().invoke(ctx)


@contextmanager
def _escape_usage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # typer's own copy of click's ClickException has no public name.
        if hasattr(error, "format_message") and hasattr(error, "message"):
            error.message = to_line(error.message)
        raise


app = typer.Typer(
    name="tracekit",
    cls=SubcommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How long a PyTorch iteration would take on another GPU, from the profiler traces of the one you have.",
    epilog="Exit codes: 0 fine, 1 the trace or a name is at fault, 2 wrong usage, 3 --fail-above exceeded, "
    "4 --strict not met, 70 a bug, 130 interrupted.",
)
app.command("record", cls=Subcommand, context_settings=record.PASS_THROUGH_SETTINGS)(record.record)
app.command("info", cls=Subcommand)(info.info)
app.command("report", cls=Subcommand)(report.report)
app.command("predict", cls=Subcommand)(predict.predict)
app.command("sweep", cls=Subcommand)(sweep.sweep)
app.command("compare", cls=Subcommand)(compare.compare)
app.command("export", cls=Subcommand)(export.export)
app.command("view", cls=Subcommand)(view.view)
app.command("doctor", cls=Subcommand)(doctor.doctor)
app.command("redact", cls=Subcommand)(redact.redact)
app.command("gpus", cls=Subcommand)(gpus.gpus)
app.command("clusters", cls=Subcommand)(clusters.clusters)
app.command("calibrate", cls=Subcommand)(calibrate.calibrate)
app.command("cache", cls=Subcommand)(cache.cache)
app.command("serve", cls=Subcommand)(serve.serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tracekit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line; report expected failures in one line on stderr."""
    gc.set_threshold(GC_THRESHOLD)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except TracekitError as error:
        code = EXIT_USAGE if isinstance(error, RequestError) else EXIT_FAILURE
        _fail(f"{error} [{error.code}]", code)
    except Exception as error:
        from predictors import PredictorError

        if isinstance(error, PredictorError):
            _fail(f"{error} [{error.code}]", EXIT_FAILURE)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _fail("there is no space left where the output goes. Make room, and run it again.", EXIT_FAILURE)
        if isinstance(error, OSError) and error.errno in PATH_ERRNOS and error.filename is not None:
            _fail(f"{error.filename} can't be read or written: {error.strerror}.", EXIT_FAILURE)
        if _is_out_of_memory(error):
            _fail(
                "there is not enough memory. Allow more (ulimit -v, the container's limit), or read less.", EXIT_FAILURE
            )
        print(to_lines(traceback.format_exc()), end="", file=sys.stderr)  # noqa: T201
        _fail("this is a bug in tracekit; please report it with the lines above", EXIT_BUG)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, also where a library could not be loaded for want of it."""
    if error is None:
        return False
    ran_out = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return ran_out or "failed to map segment" in str(error) or _is_out_of_memory(error.__cause__ or error.__context__)


def _fail(message: str, code: int) -> None:
    print(f"tracekit: {to_line(message)}", file=sys.stderr)  # noqa: T201
    sys.exit(code)
