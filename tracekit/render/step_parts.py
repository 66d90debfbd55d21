"""Where the measured step's time goes, for terminals: by owner, phase, rank and module, and why the GPU was idle."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from tracekit.format import format_count, format_duration, format_percent, shorten, shorten_kernel_name
from tracekit.render.grid import append_omitted_count, make_grid, make_time_list
from tracekit.render.step_facts import name_place, sum_owner_shares
from tracekit.reporting.model import Report
from tracekit.reporting.sections.idle import IdleTime

MOST_RANKS = 10
MOST_MODULES = 24
MIN_MODULE_PCT = 1.0
MIN_OWNER_PCT = 0.1
MAX_WHERE_CHARS = 60


def render_owners(report: Report) -> Iterator[Text]:
    """Yield whose the step's time is."""
    owners = [(name_place(owner), share) for owner, share in sum_owner_shares(report) if share >= MIN_OWNER_PCT]
    said = ", ".join(f"{owner} {format_percent(share)}" for owner, share in owners)
    yield Text(f"whose it is: {said}", style="dim")


def render_phases(report: Report) -> Iterator[Text]:
    """Yield the kernel time of each phase, if there are several."""
    if len(report.phases) > 1:
        parts = (f"{row.phase} {format_duration(row.time_us)} ({format_percent(row.share)})" for row in report.phases)
        yield Text(f"kernel time: {', '.join(parts)}", style="dim")


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
