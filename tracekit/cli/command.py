"""What commands have in common: arguments that come together, and what is done with them.

A command takes the groups that it needs as one parameter; :func:`tracekit.cli.arguments.expand_groups` makes an option
of each field.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tracekit.cli.arguments import (
    ArgumentGroup,
    Force,
    Format,
    Json,
    Memory,
    NoCache,
    Output,
    Quiet,
    Ranks,
    ReportOutput,
    Stacks,
    Top,
    Verbose,
    WithDetails,
)
from tracekit.cli.config_file import SOURCE_GPU_KEY, read_config
from tracekit.messages import Message, ProgressCallback, Template, requests
from tracekit.request import RunOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tracekit.cli.output import Destinations
    from tracekit.reporting import Report
    from tracekit.request.program_options import ProgramOptions
    from tracekit.trace import Trace

Asked = TypeVar("Asked", bound=RunOptions)


@dataclass(frozen=True, kw_only=True)
class Command(ArgumentGroup):
    """A command that takes its time."""

    quiet: Quiet = False

    @contextmanager
    def show_progress(self, *further: Template) -> Iterator[ProgressCallback]:
        """Yield a function that shows the current stage on stderr, on a terminal only.

        Args:
            further: The command's stages after those that measure a run.
        """
        from tracekit.render.screen import make_console

        console = make_console(stderr=True)
        if self.quiet or not console.is_terminal:
            yield lambda stage: None
            return
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        from tracekit.compiled import announce_compilation
        from tracekit.request.stage_plan import MEASURING, compute_share_done

        plan = (*MEASURING, *further)
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %", markup=False),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(str(requests.READING_TRACE()), total=1.0)

            def show(stage: Message) -> None:
                progress.update(task, description=str(stage), completed=compute_share_done(stage, plan))

            with announce_compilation(show):
                yield show

    def write(self, contents: Mapping[Path, str | bytes]) -> None:
        """Write files, all or none, and print their paths.

        Raises:
            OutputError: A file can't be written.
        """
        from tracekit.cli.output import write_files

        write_files(contents, self.quiet)


@dataclass(frozen=True, kw_only=True)
class Printing(Command):
    """A command that prints a screen, or JSON."""

    json: Json = False

    def emit(self, screen: "RenderableType", as_json: Callable[[], str]) -> None:
        """Print the screen, or JSON instead."""
        from tracekit.cli.output import emit

        emit(screen, as_json, json=self.json)


@dataclass(frozen=True, kw_only=True)
class Writing(Printing):
    """A command that writes files, too."""

    output: Output = None
    force: Force = False

    def check_outputs(self, suffixes: Sequence[str], inputs: Sequence[str] = ()) -> tuple[Path, ...]:
        """Refuse outputs if one can't be written, as :func:`tracekit.cli.output.check_outputs`; return them."""
        from tracekit.cli.output import check_outputs

        return check_outputs(self.output, self.force, suffixes, inputs)


@dataclass(frozen=True, kw_only=True)
class Reading(Command):
    """A command that reads traces."""

    no_cache: NoCache = False
    memory: Memory = None

    def read(self, traces: Sequence[str], progress: ProgressCallback) -> "Trace":
        """Read the requested ranks, by default all.

        Raises:
            TracekitError: As ``tracekit.ingest.load``.
        """
        from tracekit.capturing.recordings import load_recording

        return load_recording(traces, progress=progress, **self._list_settings())

    def _list_settings(self) -> dict[str, Any]:
        return {"cache": not self.no_cache, "memory": self.memory}


@dataclass(frozen=True, kw_only=True)
class ReadingRanks(Reading):
    """A command that reads one rank, or a program that is named instead of traces."""

    ranks: Ranks = None

    def _list_settings(self) -> dict[str, Any]:
        return super()._list_settings() | {"ranks": None if self.ranks is None else [self.ranks]}

    def read_or_capture(
        self, traces: Sequence[str], request: Asked, program: "ProgramOptions", progress: ProgressCallback
    ) -> "tuple[Trace, Asked]":
        """Read the requested ranks, or capture the program that is named instead of traces.

        Args:
            traces: Paths and URIs; or one program, as ``FILE.py:FUNCTION`` or ``config.json``.
            request: What is asked of it.
            program: How a program is captured.
            progress: Function that shows the current stage.

        Returns:
            The trace, and what is left to ask of it.

        Raises:
            TracekitError: As :meth:`read`; or the program can't be captured, or options of programs are given that
                a trace hasn't.
        """
        from tracekit.capturing.options import is_program

        if not is_program(traces):
            program.refuse_without_program(request)
            trace = self.read(traces, progress)
            return trace, fill_source_gpu(trace, program.move_tables(request))
        progress(requests.CAPTURING())
        return program.capture_trace(traces[0], request)


@dataclass(frozen=True, kw_only=True)
class ReadingStacks(ReadingRanks):
    """A command that reads Python's calls, too, if asked."""

    stacks: Stacks = False

    def _list_settings(self) -> dict[str, Any]:
        return super()._list_settings() | {"stacks": self.stacks}


@dataclass(frozen=True, kw_only=True)
class Reporting(ReadingStacks, Printing):
    """A command that prints a report and writes it in the forms that names and suffixes select."""

    top: Top = 10
    form: Format = None
    output: ReportOutput = None
    force: Force = False
    with_details: WithDetails = False
    verbose: Verbose = False

    def settle_outputs(self, inputs: Sequence[str], *, has_targets: bool = False) -> "Destinations":
        """Return where the report goes, as :func:`tracekit.cli.output.settle_outputs`."""
        from tracekit.cli.output import settle_outputs

        return settle_outputs(self.form, self.output, self.force, inputs, json=self.json, has_targets=has_targets)

    def deliver(
        self,
        report: "Report",
        to: "Destinations",
        trace: "Trace",
        screen: "Callable[[Report], RenderableType]",
        as_json: "Callable[[Report], str]",
    ) -> None:
        """Print a report and write its files, as :func:`tracekit.cli.output.deliver_report`."""
        from tracekit.cli.output import ReportForms, deliver_report

        forms = ReportForms(screen, as_json)
        deliver_report(report, forms, to, trace=trace, with_details=self.with_details, quiet=self.quiet)


def fill_source_gpu(trace: "Trace", request: Asked) -> Asked:
    """Return the request with the configured source GPU, if neither it nor the trace tells one; that is said."""
    if request.source_gpu is not None or ((device := trace.ranks[0].device) and device.name.strip()):
        return request
    config = read_config()
    gpu = config.values.get(SOURCE_GPU_KEY)
    if not isinstance(gpu, str):
        return request
    from tracekit.cli.output import say

    say(str(requests.CONFIGURED_SOURCE_GPU(path=str(config.origins[SOURCE_GPU_KEY]), gpu=gpu)))
    return replace(request, source_gpu=gpu)
