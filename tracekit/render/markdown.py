"""Render the report as Markdown for issues, merge requests and chats."""

from collections.abc import Iterator, Sequence

from tracekit.escape import Code, to_markdown
from tracekit.format import (
    format_count,
    format_duration,
    format_interval,
    format_percent,
    format_quantity,
    format_shape,
    shorten,
)
from tracekit.render.facts import (
    ENERGY_TITLE,
    MOST_DETAILED_TARGETS,
    SERVING_TITLE,
    build_cost_columns,
    build_edit_rows,
    build_energy_rows,
    build_serving_rows,
    describe_batches,
    describe_step_samples,
    explain_headings,
    format_fit,
    format_rank,
    format_speedup,
    is_per_sample,
    keep_best,
    list_edit_headings,
    list_energy_headings,
    list_serving_headings,
)
from tracekit.render.sentences import build_headline, choose_notes, group_findings, merge_target_notes
from tracekit.reporting.model import Report, TargetsReport
from tracekit.reporting.sections.serving import ServingTimes
from tracekit.reporting.sections.step import list_parts
from tracekit.reporting.tables import COLLECTIVES, COPIES, CRITICAL, IDLE, MODULES, PEAK, PEAK_SLICES, PHASES, RANKS

MAX_KERNELS = 20
MAX_ROWS = 10
"""Most rows of a table of the measured step."""
MAX_NAME_CHARS = 60


def render_report(report: Report) -> str:
    """Return the report as Markdown."""
    return "\n".join(_generate_lines(report)) + "\n"


def _generate_lines(report: Report) -> Iterator[str]:
    said = build_headline(report)
    yield from (f"# {to_markdown(f'{said.before} {said.figure}{said.after}')}", "", to_markdown(said.detail), "")
    yield from generate_step_table(report)
    best = keep_best(report, MOST_DETAILED_TARGETS)
    if report.serving:
        yield from ("", f"## {SERVING_TITLE.capitalize()}", "")
        yield from _generate_serving_lines(report.serving)
    if report.targets:
        yield from ("", f"## {ENERGY_TITLE[0].upper()}{ENERGY_TITLE[1:]}", "")
        yield from format_table(("GPU", *list_energy_headings(report)), [*build_energy_rows(best)])
    yield from ("", "## Where the time goes", "")
    yield from _generate_time_table(best)
    if not report.targets:
        yield from _generate_measured_tables(report)
    if report.findings:
        yield from ("", "## What holds it back", "")
        for group in group_findings(report.findings):
            first, titles = group[0], " ".join(one.message.render_text(escape=to_markdown) for one in group)
            saves = f" (saves up to {format_duration(first.saves_us)})" if first.saves_us else ""
            yield f"- **{titles}**{saves} {first.message.render_hint(escape=to_markdown)}"
    if report.what_if:
        yield from ("", "## What if", "")
        yield from format_table(
            ("edit", "", *list_edit_headings(report)),
            [(Code(r.text), r.description, *r.figures) for r in build_edit_rows(report)],
        )
    yield from ("", "## Kernels", "")
    yield from _generate_kernel_table(best)
    notes = choose_notes(report, escape=to_markdown)
    if notes.texts:
        yield from ("", "## Notes", "", *(f"- {note}" for note in notes.texts))
    if notes.omitted:
        yield f"- {format_quantity(notes.omitted, 'more note')}: `tracekit predict -v`"
    if report.warnings:
        doubts = [warning.render(escape=to_markdown) for warning in report.warnings]
        yield from ("", "## Before you rely on this", "", *(f"- {doubt}" for doubt in doubts))
    origin = report.provenance
    digest = f" (SHA-256 `{origin.sha256}`)" if origin.sha256 else ""
    trace, events = to_markdown(Code(origin.trace)), report.events.summary.render_text(escape=to_markdown)
    yield from ("", f"tracekit {origin.version} from {trace}{digest}; {events}")


def _generate_measured_tables(report: Report) -> Iterator[str]:
    """Yield why the measured step is as long as it is: tables that a comparison of GPUs goes without."""
    tables = (
        ("Kernel time by phase", PHASES, report.phases if len(report.phases) > 1 else (), ()),
        ("How much of the GPU's peak it uses", PEAK, report.peak_use, ("on",)),
        ("MFU by phase and module", PEAK_SLICES, report.peak_slices, ()),
        ("Time by module", MODULES, report.modules, ()),
        ("Who waits for whom", RANKS, sorted(report.ranks, key=lambda rank: -rank.held_up_us), ()),
        ("Communication", COLLECTIVES, report.communication, () if report.ranks else ("skew_us",)),
        ("Why the GPU was idle", IDLE, report.idle, ()),
        ("Critical path", CRITICAL, report.critical.ops, ()),
        ("Copies", COPIES, report.copies, ()),
    )
    for title, table, rows, without in tables:
        if rows:
            headings, cells = table.show_rows(rows[:MAX_ROWS], without)
            yield from ("", f"## {title}", "")
            yield from format_table(headings, [[shorten(cell, MAX_NAME_CHARS) for cell in row] for row in cells])
            if len(rows) > MAX_ROWS:
                yield from ("", f"{MAX_ROWS} of {len(rows):,}; `-o report.xlsx` has all.")


def generate_step_table(report: TargetsReport) -> Iterator[str]:
    """Yield the table of the measured step and the predicted ones, and what is said below it."""
    source = report.source
    by_sample = is_per_sample(report)
    done = [*build_cost_columns(report)]
    busy = format_duration(source.kernel_time_us)
    ranked = ("rank",) * (len(report.targets) > 1)
    measured = (
        source.gpu or source.label,
        *("" for _ in ranked),
        format_duration(source.step_time_us),
        "",
        "",
        *(one.measured for one in done),
        "",
        busy,
        "",
    )
    rows = [
        (
            target.label,
            *(format_rank(report, target) for _ in ranked),
            format_duration(target.step.step_time_us),
            format_interval(target.low_us, target.high_us, target.step.step_time_us),
            *([format_speedup(target.speedup_per_sample, "×")] if report.has_baseline else []),
            *(one.format_target(target) for one in done),
            format_fit(target.memory),
            format_duration(target.step.kernel_time_us),
            format_percent(target.coverage.modelled),
        )
        for target in report.targets
    ]
    faster = ("throughput" if by_sample else "speedup",) if report.has_baseline else ()
    heads = (
        "GPU",
        *ranked,
        "step",
        "90 % interval",
        *faster,
        *(one.heading for one in done),
        "fits",
        "GPU busy",
        "modelled",
    )
    yield from format_table(heads, [measured, *rows] if report.has_baseline else rows)
    for target in report.targets:
        if there := target.same_host:
            step, span = (
                format_duration(there.step_time_us),
                format_interval(there.low_us, there.high_us, there.step_time_us),
            )
            yield from ("", f"{to_markdown(target.label)} with a CPU like the trace's: {step} ({span}).")
    for line in (*merge_target_notes(report, describe_step_samples), *explain_headings(done)):
        yield from ("", f"{to_markdown(line[0].upper() + line[1:])}.")


def _generate_serving_lines(times: ServingTimes) -> Iterator[str]:
    for served in times.kinds:
        yield from (to_markdown(f"{describe_batches(served)}:"), "")
        yield from format_table(("GPU", *list_serving_headings(served)), [*build_serving_rows(served)])
        yield ""
    yield from (f"- {note.render(escape=to_markdown)}" for note in times.notes)


def _generate_time_table(report: Report) -> Iterator[str]:
    parts = [dict(bar.parts) for bar in report.compared_bars]
    rows = [
        (family, *(format_duration(part.get(family, 0.0)) for part in parts))
        for family in list_parts(report.compared_bars)
    ]
    return format_table(("", *(bar.label for bar in report.compared_bars)), rows)


def _generate_kernel_table(report: Report) -> Iterator[str]:
    rows = [
        (
            kernel.family,
            Code(shorten(kernel.op or kernel.name, MAX_NAME_CHARS)),
            shorten(format_shape(kernel.shape), MAX_NAME_CHARS),
            format_count(kernel.count),
            *([format_duration(kernel.time_us)] if report.has_baseline else []),
            format_percent(kernel.share),
            "–" if kernel.utilization is None else format_percent(kernel.utilization),
            kernel.limiter or "–",
            *map(format_duration, kernel.predicted_us[: len(report.targets)]),
        )
        for kernel in report.kernels[:MAX_KERNELS]
    ]
    here = (report.source.label,) if report.has_baseline else ()
    heads = ("family", "op", "shape", "launches", *here, "of kernel time", "% roof", "bound by")
    yield from format_table((*heads, *(target.label for target in report.targets)), rows)
    if len(report.kernels) > MAX_KERNELS:
        yield from ("", f"{MAX_KERNELS} of {len(report.kernels):,} kernels; `-o kernels.csv` has all.")


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table.

    Headings and cells are plain text; cells of type :class:`~tracekit.escape.Code` are shown as code.
    """
    for number, row in enumerate((heads, *rows)):
        yield "| " + " | ".join(map(_format_cell, row)) + " |"
        if number == 0:
            yield "| " + " | ".join(["---"] * len(heads)) + " |"


def _format_cell(cell: str) -> str:
    # A table is split at pipes before code is told.
    return to_markdown(cell).replace("|", "\\|") if isinstance(cell, Code) else to_markdown(cell)
