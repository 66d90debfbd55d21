"""Table of the step on each target, for terminals."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.format import format_duration, format_interval, format_percent
from tracekit.prediction.model import PredictedStep, StepOnHost
from tracekit.render import costs
from tracekit.render.grid import ColumnKind, Grid, append_omitted_count, make_grid
from tracekit.render.notes import merge_target_notes
from tracekit.render.step_facts import (
    MOST_DETAILED_TARGETS,
    describe_step_samples,
    format_fit,
    format_rank,
    format_speedup,
    is_per_sample,
)
from tracekit.reporting.model import TargetsReport

MOST_TARGETS = 20
MIN_SHARE_PCT = 0.5
PART_HEADINGS = ("GPU busy", "idle", "modelled")

Heading = tuple[str, ColumnKind]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the table.

    Attributes:
        costs: Throughput and cost.
        is_ranked: Whether there are several targets to rank.
        has_fit: Whether a target's memory may be too small.
        has_speed: Whether there is a measured step that targets are compared with.
        has_parts: Whether there are few enough targets for ``PART_HEADINGS``.
    """

    costs: list[costs.CostColumn]
    is_ranked: bool
    has_fit: bool
    has_speed: bool
    has_parts: bool

    def make_table(self, speed_heading: str) -> Grid:
        """Make the table without rows."""
        ranks: list[Heading] = [("rank", "mark")] * self.is_ranked
        priced: list[Heading] = [(one.heading, one.kind if self.has_parts else "number") for one in self.costs]
        fits: list[Heading] = [("fits", "mark")] * self.has_fit
        parts: list[Heading] = [(heading, "number") for heading in PART_HEADINGS if self.has_parts]
        fixed: list[Heading] = [("step", "figure"), ("90 % interval", "figure")]
        speeds: list[Heading] = [(speed_heading, "figure")] * self.has_speed
        return make_grid(("", "word"), *ranks, *fixed, *speeds, *priced, *fits, *parts)

    def arrange_row(
        self,
        label: str | Text,
        step: str | Text,
        *,
        rank: str = "",
        interval: str = "",
        speed: str = "",
        costs: Iterable[str] = (),
        fit: str = "",
        parts: Iterable[str] = (),
    ) -> Iterator[str | Text]:
        """Yield the cells of a row, blank where nothing is given."""
        yield label
        yield from [rank] * self.is_ranked
        yield from (step, interval)
        yield from [speed] * self.has_speed
        yield from [*costs] or [""] * len(self.costs)
        yield from [fit] * self.has_fit
        yield from ([*parts] or [""] * len(PART_HEADINGS)) if self.has_parts else ()


def render_targets(report: TargetsReport) -> RenderableType:
    """Render the step, its throughput and its cost, here and on each target; with few targets in detail."""
    has_details = len(report.targets) <= MOST_DETAILED_TARGETS
    columns = _Columns(
        [*costs.build_cost_columns(report, brief=not has_details)],
        is_ranked=len(report.targets) > 1,
        has_fit=not all(target.memory.fits for target in report.targets),
        has_speed=not report.source.is_captured,
        has_parts=has_details,
    )
    table = columns.make_table("throughput" if is_per_sample(report) else "speedup")
    source = report.source
    if not source.is_captured:
        measured = columns.arrange_row(
            source.label,
            format_duration(source.step_time_us),
            costs=(one.measured for one in columns.costs),
            parts=_format_parts(source.kernel_time_us, source.idle_us, ""),
        )
        table.add_row(*measured)
    for target in report.targets[:MOST_TARGETS]:
        table.add_row(*_arrange_target(report, target, columns))
        for name, host in (("same CPU", target.same_host), ("usual CPU", target.usual_host)):
            if host and has_details:
                table.add_row(*_arrange_host(name, target, host, columns))
    said = [
        *merge_target_notes(report, describe_step_samples),
        *costs.explain_headings(columns.costs),
        *merge_target_notes(report, _describe_unmodelled),
    ]
    listed = append_omitted_count(table, len(report.targets) - MOST_TARGETS, "more: --json, -o report.html")
    return Group(listed, *(Text(line, style="dim") for line in said))


def _arrange_target(report: TargetsReport, target: PredictedStep, columns: _Columns) -> Iterator[str | Text]:
    step = target.step
    return columns.arrange_row(
        Text(target.label, style="bold"),
        Text(format_duration(step.step_time_us), style="bold"),
        rank=format_rank(report, target) if columns.is_ranked else "",
        interval=format_interval(target.low_us, target.high_us),
        speed=format_speedup(target.speedup_per_sample),
        costs=(one.format_target(target) for one in columns.costs),
        fit=format_fit(target.memory),
        parts=_format_parts(step.kernel_time_us, step.idle_us, format_percent(target.coverage.modelled)),
    )


def _arrange_host(name: str, target: PredictedStep, there: StepOnHost, columns: _Columns) -> Iterator[str | Text]:
    faster = target.step.step_time_us / there.step_time_us
    speedup = None if target.speedup_per_sample is None else target.speedup_per_sample * faster
    return columns.arrange_row(
        f"  {name}",
        format_duration(there.step_time_us),
        interval=format_interval(there.low_us, there.high_us),
        speed=format_speedup(speedup),
    )


def _format_parts(kernel_time_us: float, idle_us: float, modelled: str) -> tuple[str, str, str]:
    """Format the cells below ``PART_HEADINGS``."""
    return format_duration(kernel_time_us), format_duration(idle_us), modelled


def _describe_unmodelled(target: PredictedStep) -> Iterator[str]:
    """Yield how the kernel time that isn't modelled was predicted."""
    unknown = "of unknown work" if target.speedup is None else "kept as measured"
    ways = (
        ("inferred from its tiles and time", target.coverage.inferred),
        ("scaled by the kind of kernel", target.coverage.scaled),
        (unknown, target.coverage.unknown),
    )
    said = [f"{format_percent(share)} {way}" for way, share in ways if share >= MIN_SHARE_PCT]
    if said:
        yield f"Kernel time that isn't modelled from shapes: {', '.join(said)}"
