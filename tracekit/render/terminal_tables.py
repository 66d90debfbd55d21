"""Tables of the report for terminals: targets, kernels, parts of the step and the critical path."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.format import (
    format_count,
    format_duration,
    format_interval,
    format_percent,
    format_shape,
    name_place,
    shorten,
    shorten_kernel_name,
)
from tracekit.prediction.model import PredictedStep
from tracekit.render.facts import (
    MIN_OWNER_PCT,
    MOST_DETAILED_TARGETS,
    CostColumn,
    build_cost_columns,
    describe_peak_use,
    describe_step_samples,
    explain_headings,
    format_fit,
    format_rank,
    format_speedup,
    is_per_sample,
    list_owners,
    list_peak_edits,
    list_peak_slices,
)
from tracekit.render.screen import ColumnKind, Grid, GridWithShortForm, append_omitted_count, make_grid, make_time_list
from tracekit.render.sentences import describe_speeds, merge_target_notes
from tracekit.reporting.columns import Table
from tracekit.reporting.model import Report, TargetsReport, TraceInfo
from tracekit.reporting.sections.kernels import KernelTime
from tracekit.reporting.sections.limits import IdleTime
from tracekit.reporting.sections.peak_use import PeakSlice
from tracekit.reporting.tables import COLLECTIVES, PEAK_SLICES

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

    costs: list[CostColumn]
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
        [*build_cost_columns(report, with_ends=has_details, with_throughput=has_details)],
        is_ranked=len(report.targets) > 1,
        has_fit=not all(target.memory.fits for target in report.targets),
        has_speed=not report.source.is_captured,
        has_parts=has_details,
    )
    tables = [_make_targets_table(report, columns)]
    if has_details:
        tables.append(
            _make_targets_table(report, replace(columns, costs=[*build_cost_columns(report, with_ends=False)]))
        )
    said = [
        *merge_target_notes(report, describe_step_samples),
        *explain_headings(columns.costs),
        *merge_target_notes(report, _describe_unmodelled),
    ]
    listed = append_omitted_count(
        GridWithShortForm(tables[0], tables[-1]),
        len(report.targets) - MOST_TARGETS,
        "more: --json, -o report.html",
    )
    return Group(listed, *(Text(line, style="dim") for line in said))


def _make_targets_table(report: TargetsReport, columns: _Columns) -> Grid:
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
    return table


def _arrange_target(report: TargetsReport, target: PredictedStep, columns: _Columns) -> Iterator[str | Text]:
    step = target.step
    return columns.arrange_row(
        Text(target.label, style="bold"),
        Text(format_duration(step.step_time_us), style="bold"),
        rank=format_rank(report, target) if columns.is_ranked else "",
        interval=format_interval(target.low_us, target.high_us, target.step.step_time_us),
        speed=format_speedup(target.speedup_per_sample),
        costs=(one.format_target(target) for one in columns.costs),
        fit=format_fit(target.memory),
        parts=_format_parts(step.kernel_time_us, step.idle_us, format_percent(target.coverage.modelled)),
    )


def _format_parts(kernel_time_us: float, idle_us: float, modelled: str) -> tuple[str, str, str]:
    """Format the cells below ``PART_HEADINGS``."""
    return format_duration(kernel_time_us), format_duration(idle_us), modelled


def _describe_unmodelled(target: PredictedStep) -> Iterator[str]:
    """Yield how the kernel time that isn't modelled was predicted."""
    unknown = "is of unknown work" if target.speedup is None else "is taken over unchanged"
    ways = (
        ("is inferred from its tiles and time", target.coverage.inferred),
        ("is a rough estimate by the kind of kernel", target.coverage.scaled),
        (unknown, target.coverage.unknown),
    )
    said = [f"{format_percent(share)} {way}" for way, share in ways if share >= MIN_SHARE_PCT]
    if said:
        yield f"Of the kernel time {', '.join(said)}"


MAX_OVER_BOUND_ROWS = 10


def make_measured_table(kernels: Sequence[KernelTime]) -> Grid:
    """Make the table of measured kernels: time, and utilization of the roofline."""
    table = make_grid(
        ("time", "number"), ("of kernel time", "number"), ("family", "word"), ("bound by", "number"),
        ("% roof", "number"), ("count", "number"), ("op, shapes, kernel", "text"),
    )  # fmt: skip
    for kernel in kernels:
        utilization = "–" if kernel.utilization is None else f"{kernel.utilization:.0f}"
        table.add_row(
            format_duration(kernel.time_us),
            format_percent(kernel.share),
            kernel.family,
            kernel.limiter or "–",
            utilization,
            format_count(kernel.count),
            _format_call(kernel),
        )
    return table


def _format_call(kernel: KernelTime) -> str:
    """Format op, shapes and kernel name in one column, so that a narrow screen shows at least the op."""
    parts = (
        shorten(kernel.op or "", 28),
        shorten(format_shape(kernel.shape), 28),
        shorten(shorten_kernel_name(kernel.name), 40),
    )
    return "  ".join(part for part in parts if part)


def make_predicted_table(report: Report, top: int) -> Grid:
    """Make the table of the largest kernels: measured time, and predicted time on each target."""
    here: list[tuple[str, ColumnKind]] = [(report.source.label, "figure")] * report.has_baseline
    table = make_grid(
        *here, *((target.label, "number") for target in report.targets), ("family", "detail"),
        ("op, shapes, kernel", "text"),
    )  # fmt: skip
    for kernel in report.kernels[:top]:
        table.add_row(
            *[format_duration(kernel.time_us)] * report.has_baseline,
            *map(format_duration, kernel.predicted_us[: len(report.targets)]),
            kernel.family,
            _format_call(kernel),
        )
    return table


def make_over_bound_table(report: TraceInfo) -> RenderableType:
    """Make the table of kernels faster than their bound: work counted too high, or data from the cache."""
    table = make_grid(
        ("of kernel time", "number"), ("% roof", "number"), ("family", "word"), ("why", "word"), ("kernel", "text")
    )
    for row in report.over_bound[:MAX_OVER_BOUND_ROWS]:
        why = "cached" if row.cached else "counted too high"
        table.add_row(
            format_percent(row.share),
            f"{row.utilization:.0f}",
            row.family,
            why,
            shorten(shorten_kernel_name(row.name), 40),
        )
    return append_omitted_count(table, len(report.over_bound) - MAX_OVER_BOUND_ROWS, "smaller ones: --json")


MOST_RANKS = 10
MOST_MODULES = 24
MIN_MODULE_PCT = 1.0
MAX_WHERE_CHARS = 60
MOST_PATH_NAMES, MAX_PATH_CHARS = 2, 28


def render_owners(report: Report) -> Iterator[Text]:
    """Yield what the step's time is spent with."""
    said = ", ".join(f"{owner} {format_percent(share)}" for owner, share in list_owners(report))
    yield Text(f"busy with: {said}", style="dim")


def render_phases(report: Report) -> Iterator[Text]:
    """Yield the kernel time of each phase, if there are several."""
    if len(report.phases) > 1:
        parts = (f"{row.phase} {format_duration(row.time_us)} ({format_percent(row.share)})" for row in report.phases)
        yield Text(f"kernel time: {', '.join(parts)}", style="dim")


def render_peak_use(report: Report, *, with_parts: bool = False) -> RenderableType | None:
    """Render the share of the peak that each step uses, and where the rest goes.

    Args:
        report: The report.
        with_parts: Whether to render phases, modules and edits, too.
    """
    lines: list[RenderableType] = [Text(line) for line in describe_peak_use(report)]
    if with_parts:
        lines += [part for label, rows in list_peak_slices(report) for part in (Text(), _make_slice_table(label, rows))]
    if with_parts and (edits := list_peak_edits(report)):
        grid = make_grid(("MFU", "number"), ("without", "word"), ("by --what-if", "text"))
        for row in edits:
            grid.add_row(*row)
        lines += [Text(), grid]
    return Group(*lines) if lines else None


def _make_slice_table(label: str, rows: Sequence[PeakSlice]) -> Grid:
    """Make the table of a step's phases and modules, as its columns are declared; of a module its path's last names."""
    short = [replace(row, name=".".join(row.name.split(".")[-MOST_PATH_NAMES:])) for row in rows]
    (_, time, *shares, mostly), cells = PEAK_SLICES.show_rows(short, ("lost_share",))
    grid = make_grid((label, "word"), (time, "figure"), *((share, "number") for share in shares), (mostly, "text"))
    for row in cells:
        grid.add_row(shorten(row[0], MAX_PATH_CHARS), *row[1:])
    return grid


def make_figure_table(table: Table, rows: Iterable[Any], without: Sequence[str] = ()) -> Grid:
    """Make a table as its columns are declared."""
    (first, *others), cells = table.show_rows(rows, without)
    grid = make_grid((first, "word"), *((heading, "number") for heading in others))
    for row in cells:
        grid.add_row(*row)
    return grid


def render_collectives(report: Report) -> RenderableType:
    """Render the collectives by kind; of one rank without how far the ranks are apart."""
    return make_figure_table(COLLECTIVES, report.communication, () if report.ranks else ("skew_us",))


def render_ranks(report: Report) -> RenderableType:
    """Render the ranks that delay the others most, at most ten."""
    table = make_grid(
        ("rank", "figure"), ("busy", "number"), ("waits", "number"), ("comes last", "number"), ("holds up", "figure"),
        ("clock", "number"),
    )  # fmt: skip
    for rank in sorted(report.ranks, key=lambda rank: -rank.held_up_us)[:MOST_RANKS]:
        table.add_row(
            str(rank.rank),
            format_duration(rank.busy_us),
            format_duration(rank.wait_us),
            format_percent(rank.last),
            format_duration(rank.held_up_us),
            "–" if rank.clock_ahead_us is None else f"{round(rank.clock_ahead_us):+,} µs",
        )
    return append_omitted_count(table, len(report.ranks) - MOST_RANKS, "that hold up less: -o report.xlsx")


def render_modules(report: Report) -> RenderableType:
    """Render the module tree without small modules."""
    table = make_grid(
        ("time", "figure"), ("of kernel time", "number"), ("backward", "number"), ("own", "number"),
        ("kernels", "number"), ("module", "text"),
    )  # fmt: skip
    shown = [row for row in report.modules if row.share >= MIN_MODULE_PCT][:MOST_MODULES]
    for row in shown:
        label = "  " * row.depth + row.path.rpartition(".")[2] if row.path else "launched by no module"
        times = (row.time_us, row.backward_us, row.own_us)
        time_us, backward, own = (format_duration(time) if time else "–" for time in times)
        table.add_row(time_us, format_percent(row.share), backward, own, format_count(row.kernels), label)
    return append_omitted_count(table, len(report.modules) - len(shown), "smaller ones: -o report.html")


def render_idle(report: Report) -> RenderableType | None:
    """Render why the GPU was idle, if it was."""
    if not report.idle:
        return None
    shown = [row for row in report.idle if row.share >= MIN_OWNER_PCT]
    return make_time_list((row.time_us, row.share, _describe_idle(row)) for row in shown)


def _describe_idle(row: IdleTime) -> Text:
    where = f"; mostly before {shorten(shorten_kernel_name(row.op), MAX_WHERE_CHARS)}" if row.op else ""
    where += f", launched in {row.line}" if row.line else ""
    return Text.assemble(str(row.meaning), (where, "dim"))


MAX_OPS = 5
MAX_OP_CHARS = 60


def render_critical_path(report: Report) -> RenderableType:
    """Render where the critical path runs, its largest ops, and the ops close to it."""
    found = report.critical
    parts: list[RenderableType] = [
        Text(" · ".join(f"{name_place(place)} {format_percent(share)}" for place, share in found.places)),
        make_time_list(
            (
                row.time_us,
                row.share,
                Text.assemble(shorten(shorten_kernel_name(row.op), MAX_OP_CHARS), (f", {name_place(row.on)}", "dim")),
            )
            for row in found.ops[:MAX_OPS]
        ),
    ]
    if found.near:
        near = ", ".join(
            f"{shorten(shorten_kernel_name(row.op), MAX_OP_CHARS)} (by {format_duration(row.slack_us)})"
            for row in found.near
        )
        parts.append(Text(f"nearly on it: {near}", style="dim"))
    return Group(*parts)


def render_speed_lines(report: Report) -> RenderableType:
    """Render one line each for the GPU, the CPU and the network."""
    return Group(*(Text(str(line)) for line in describe_speeds(report)))
