"""The ``tracekit`` command: its subcommands and error handling."""

import gc
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tracekit import __version__
from tracekit.cli.agents import mcp
from tracekit.cli.answer import capture, predict, report, search, shard, sweep
from tracekit.cli.comparison import compare, scoreboard
from tracekit.cli.config_file import CONFIGURED_COMMANDS, read_config
from tracekit.cli.files import PASS_THROUGH_SETTINGS, doctor, export, info, record, redact, share, view
from tracekit.cli.help import ShortHelpGroupMixin, Subcommand, SwitchHelpMixin
from tracekit.cli.machine import cache, calibrate, clusters, config, demo, explain, gpus, hosts
from tracekit.cli.process import Failure, check_memory_limit, drop_output, explain_failure, prepare_streams
from tracekit.cli.serve import serve
from tracekit.cli.serving import serving
from tracekit.escape import to_line, to_lines
from tracekit.interrupts import exit_interrupted, ignore_interrupts, note_interrupts, was_interrupted

EXIT_BUG = 70

GC_THRESHOLD = 200_000
"""New objects between two collections of cyclic garbage. Imports create 70,000 that live as long as the command; at
Python's 700, collections find next to nothing and take 4 % of a prediction's CPU time."""


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


class SubcommandGroup(ShortHelpGroupMixin, SwitchHelpMixin, TyperGroup):
    """The group of all subcommands; its errors show wrong arguments as lines of text."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the arguments in front of the subcommand."""
        with _escape_usage_errors():
            return super().make_context(*args, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the subcommand's name, the subcommand, and its arguments: of a trace alone, what to do with it."""
        if self.get_command(ctx, args[0]) is None and is_input(args[0]):
            args = choose_command(args)
        if args[0] in CONFIGURED_COMMANDS:
            ctx.default_map = {args[0]: read_config().defaults}
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Parse the subcommand's arguments, and run it."""
        check_memory_limit()
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
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How long a PyTorch iteration would take on another GPU, from the profiler traces of the one you have.",
    epilog="`tracekit TRACE` alone reports it, or predicts it on the targets of your configuration. `tracekit demo` "
    "shows a sample. `tracekit explain` is the documentation, offline.\n\n"
    "Exit codes: 0 fine, 1 the trace or a name is at fault, 2 wrong usage, 3 --fail-above exceeded, "
    "4 --strict not met, 70 a bug, 130 interrupted.",
)

COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Predict": (
        predict,
        sweep,
        search,
        compare,
        scoreboard,
        capture,
        shard,
        serving,
    ),
    "Look into a trace": (report, info, doctor, export, view),
    "Record and share": (record, share, redact),
    "Look up": (demo, explain, gpus, clusters, hosts),
    "Set up": (config, calibrate, cache, serve, mcp),
}
"""By the panel of the help."""

for panel, commands in COMMANDS.items():
    for command in commands:
        settings = PASS_THROUGH_SETTINGS if command is record else None
        app.command(command.__name__, cls=Subcommand, rich_help_panel=panel, context_settings=settings)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tracekit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def limit_commands(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line with the one subcommand that the arguments name: typer makes the options of all it has.

    Where they name none, all are needed, for the help and to say which was meant; ``demo`` and ``mcp`` run others.
    """
    limited = copy(app)
    named = [one for one in app.registered_commands if one.name in arguments[:1] and one.callback not in (demo, mcp)]
    limited.registered_commands = named or app.registered_commands
    return limited


def main() -> None:
    """Run the command line; report expected failures in one line on stderr."""
    note_interrupts()
    prepare_streams()
    gc.set_threshold(GC_THRESHOLD)
    try:
        try:
            limit_commands(sys.argv[1:])(prog_name="tracekit")
        finally:
            sys.stdout.flush()
            ignore_interrupts()
            gc.freeze()  # or Python's last collections walk all the imports, an eighth of a small command's CPU time
    except KeyboardInterrupt:
        exit_interrupted()
    except Exception as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    if was_interrupted():
        exit_interrupted()
    failure = explain_failure(error)
    if failure is None:
        print(to_lines(traceback.format_exc()), end="", file=sys.stderr)  # noqa: T201
        failure = Failure("this is a bug in tracekit; please report it with the lines above", EXIT_BUG)
    if isinstance(error, OSError):
        drop_output()
    if failure.text:
        print(f"tracekit: {to_line(failure.text)}", file=sys.stderr)  # noqa: T201
    sys.exit(failure.exit_code)
