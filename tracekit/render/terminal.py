"""Render the report for a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tracekit.format import format_duration, format_percent, format_quantity
from tracekit.messages import OptionNames, name_option
from tracekit.render import critical_path, energy, kernel_tables, serving, what_if_rows
from tracekit.render.bars import TimeBars
from tracekit.render.grid import make_grid, make_plain_table
from tracekit.render.headline import split_answer
from tracekit.render.notes import choose_notes, collect_notes
from tracekit.render.step_facts import MOST_DETAILED_TARGETS, keep_best
from tracekit.render.step_parts import render_idle, render_modules, render_owners, render_phases, render_ranks
from tracekit.render.target_table import render_targets
from tracekit.render.trace_facts import (
    describe_host,
    describe_module_coverage,
    describe_tables,
    render_facts,
    render_source,
)
from tracekit.reporting.findings.bottleneck import merge_bottlenecks
from tracekit.reporting.findings.finding import Finding
from tracekit.reporting.model import Report, TargetsReport

MOST_FINDINGS = 6


def render_info(report: Report) -> RenderableType:
    """Render the content of a trace, how much of it can be modelled, and the replay error."""
    coverage = report.coverage
    inferred = f" ({format_percent(coverage.inferred)} inferred)" if coverage.inferred else ""
    work = (
        f"{format_percent(coverage.work)} of kernel time has its work known{inferred}, "
        f"{format_percent(coverage.family)} only a family, {format_percent(coverage.unknown)} neither"
    )
    unknown = [kernel for kernel in report.kernels if not kernel.work_known][:10]
    return Group(
        render_source(report),
        render_facts(
            *([("steps", numbers)] if (numbers := report.source.step_numbers) else []),
            ("coverage", work),
            *describe_tables(report.source.tables),
            ("host", describe_host(report.source)),
            *describe_module_coverage(report),
        ),
        *_render_section(
            "largest kernels without known work", kernel_tables.make_measured_table(unknown) if unknown else None
        ),
        *_render_section(
            "faster than their work allows", kernel_tables.make_over_bound_table(report) if report.over_bound else None
        ),
        *_render_warnings(report),
    )


def render_measured(report: Report, top: int) -> RenderableType:
    """Render where the measured step's time goes, and its bottlenecks."""
    return Group(
        render_source(report),
        *_render_section(serving.TITLE, _render_serving(report)),
        *_render_section(TIME_TITLE, Group(TimeBars(report.bars), *render_owners(report), *render_phases(report))),
        *_render_section("time by module", render_modules(report) if report.modules else None),
        *_render_section("who waits for whom, per step", render_ranks(report) if report.ranks else None),
        *_render_section("why the GPU was idle, in % of the step", render_idle(report)),
        *_render_section("critical path, in % of it", critical_path.render_critical_path(report)),
        *_render_section("if GPU or CPU were faster", critical_path.render_speed_lines(report)),
        *_render_section("what if", _render_what_if(report)),
        *_render_section("findings", _render_findings(report)),
        *_render_section(
            _format_kernel_count(report, top), kernel_tables.make_measured_table(report.kernels[:top]) if top else None
        ),
        *_render_warnings(report),
    )


def render_predicted(report: Report, top: int, *, all_notes: bool = False) -> RenderableType:
    """Render the step on other GPUs, of many targets the best; with the notes that matter most, or all of them."""
    best = keep_best(report, MOST_DETAILED_TARGETS)
    return Group(
        *render_answer(report),
        render_source(report),
        *_render_section("predicted step", render_targets(report)),
        *_render_section(serving.TITLE, _render_serving(report)),
        *_render_section("what limits it there", _render_limits(report)),
        *_render_section(f"{energy.TITLE}{_count_best(report)}", render_energy(best)),
        *_render_section("what if", _render_what_if(report)),
        *_render_section(f"{TIME_TITLE}{_count_best(report)}", TimeBars(best.compared_bars)),
        *_render_section(
            _format_kernel_count(report, top), kernel_tables.make_predicted_table(best, top) if top else None
        ),
        *render_notes(report, all_notes=all_notes),
        *_render_warnings(report),
    )


def _count_best(report: Report) -> str:
    """Say how many targets a section shows, where it doesn't show all."""
    left = len(report.targets) - MOST_DETAILED_TARGETS
    return f" (the {MOST_DETAILED_TARGETS} best targets; all: -o report.html)" if left > 0 else ""


def render_answer(report: TargetsReport) -> Iterator[RenderableType]:
    """Render the decision: what a prediction is asked for."""
    if report.decision:
        target, speed, rest = split_answer(report.decision.sentence)
        yield Text.assemble((f"{target}: {speed}", "bold"), " ", " ".join(rest))
        yield Text()


def _format_kernel_count(report: Report, top: int) -> str:
    return f"top {min(top, len(report.kernels))} of {format_quantity(len(report.kernels), 'kernel')}"


TIME_TITLE = "where the time goes, in % of the step"


def _render_section(title: str, body: RenderableType | None) -> Iterator[RenderableType]:
    if body is not None:
        yield Text()
        yield Text(title, style="bold")
        yield Padding(body, (0, 0, 0, 2))


def _render_serving(report: Report) -> RenderableType | None:
    """Render the batches of a serving engine by kind."""
    if report.serving is None:
        return None
    parts: list[RenderableType] = []
    for served in report.serving.kinds:
        parts.append(Text(serving.describe_batches(served)))
        table = make_grid(("", "word"), *((heading, "number") for heading in serving.list_headings(served)))
        for row in serving.build_rows(served):
            table.add_row(*row)
        parts.append(table)
    return Group(*parts, *(Text(note.render(), style="dim") for note in report.serving.notes))


def render_energy(report: TargetsReport) -> RenderableType:
    """Render what a step's energy is estimated to be, here and on each target."""
    table = make_grid(("", "word"), *((heading, "number") for heading in energy.list_headings(report)))
    for row in energy.build_energy_rows(report):
        table.add_row(*row)
    return table


def _render_what_if(report: Report) -> RenderableType | None:
    if not report.what_if:
        return None
    table = make_plain_table()
    for heading in what_if_rows.list_headings(report):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in what_if_rows.build_edit_rows(report):
        table.add_row(*row.figures, Text.assemble((row.text, "bold"), ": " if row.text else "", row.description))
    return table


def _render_findings(report: Report) -> RenderableType | None:
    if not report.findings:
        return None
    lines = []
    for finding in report.findings[:MOST_FINDINGS]:
        saves = f" (saves up to {format_duration(finding.saves_us)})" if finding.saves_us else ""
        lines.append(
            Text.assemble(
                "• ", finding.title, (saves, "bold"), " ", (f"{finding.advice} [{finding.message.code}]", "dim")
            )
        )
    if len(report.findings) > MOST_FINDINGS:
        lines.append(Text(f"  and {len(report.findings) - MOST_FINDINGS} more: -o report.html", style="dim"))
    return Group(*lines)


def _render_limits(report: Report) -> RenderableType | None:
    """Render the bottleneck of each target that has a single one."""
    alike: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.bottleneck is not None:
            alike.setdefault(finding.bottleneck.limit, []).append(finding)
    merged = [merge_bottlenecks(ones) for ones in alike.values()]
    lines = [Text.assemble(one.render_text(), " ", (one.render_hint(), "dim")) for one in merged]
    return Group(*lines) if lines else None


def render_notes(
    report: TargetsReport, *, all_notes: bool, name: OptionNames = name_option
) -> Iterator[RenderableType]:
    """Render the notes on predictions: those that matter most, or all; ``name`` names options."""
    chosen = choose_notes(report, name)
    shown = collect_notes(report, name) if all_notes else chosen.texts
    told = [Text(f"note: {note}", style="dim") for note in shown]
    if chosen.omitted and not all_notes:
        told.append(Text(f"{format_quantity(chosen.omitted, 'more note')}: -v", style="dim"))
    yield from (Text(), *told) if told else ()


def _render_warnings(report: Report) -> Iterator[RenderableType]:
    for warning in report.warnings:
        yield Text(f"warning: {warning} [{warning.code}]", style="yellow")
