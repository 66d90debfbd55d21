"""Render the report for a terminal."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tracekit.analysis.binding_edges import GraphSelfCheck
from tracekit.format import format_count, format_duration, format_number, format_percent, format_quantity
from tracekit.messages import OptionNames, name_option
from tracekit.render import terminal_tables
from tracekit.render.facts import (
    ENERGY_TITLE,
    MOST_DETAILED_TARGETS,
    SERVING_TITLE,
    build_edit_rows,
    build_energy_rows,
    build_serving_rows,
    describe_batches,
    describe_host,
    describe_tables,
    format_step_count,
    keep_best,
    list_edit_headings,
    list_energy_headings,
    list_serving_headings,
)
from tracekit.render.screen import TimeBars, make_facts_table, make_grid, make_plain_table
from tracekit.render.sentences import choose_notes, collect_notes, split_answer
from tracekit.render.terminal_tables import (
    render_collectives,
    render_idle,
    render_modules,
    render_owners,
    render_peak_use,
    render_phases,
    render_ranks,
    render_targets,
)
from tracekit.reporting.findings.bottleneck import merge_bottlenecks
from tracekit.reporting.findings.context import Finding
from tracekit.reporting.model import Report, TargetsReport, TraceInfo
from tracekit.reporting.sections.communication import CopyTime
from tracekit.reporting.sections.limits import StreamTime
from tracekit.rules import Rule

MAX_UNSHOWN_ERROR_PCT = 1.0
"""Error of the replayed step up to which only ``tracekit info`` and ``-v`` tell it."""


def render_source(report: TraceInfo, *, is_checked: bool = False) -> RenderableType:
    """Render what was read, its GPU and the measured step; the replayed one where it is asked for, or far off."""
    source = report.source
    together = f" · {source.measured} of {source.ranks} ranks together"
    rank = together if source.measured > 1 else f" · rank {source.rank} of {source.ranks}" if source.ranks > 1 else ""
    exposed = f", only communicating {format_duration(source.exposed_comm_us)}" if source.exposed_comm_us else ""
    waiting = f" ({format_duration(source.waiting_us)} of it waiting for other ranks)" if source.waiting_us else ""
    gpu = f"{source.resolution} · {format_step_count(source)} · {format_quantity(source.kernels, 'kernel')} · shapes "
    return render_facts(
        ("trace", source.trace + rank),
        ("events", report.events.summary.render_text()),
        ("source GPU", gpu + ("recorded" if source.shapes_recorded else "not recorded")),
        (
            "step",
            f"{format_duration(source.step_time_us)}: GPU busy {format_duration(source.kernel_time_us)}, "
            f"idle {format_duration(source.idle_us)}" + exposed + waiting,
        ),
        *_describe_replay(report, is_checked=is_checked),
    )


def _describe_replay(report: TraceInfo, *, is_checked: bool) -> Iterator[tuple[str, str]]:
    """Describe how well the dependency graph gives the step back."""
    replay = report.replay
    if is_checked or abs(replay.error_pct) > MAX_UNSHOWN_ERROR_PCT:
        took = f"{format_duration(replay.step_time_us)} ({replay.error_pct:+z.2f} %)"
        yield "check", f"rebuilt from its kernels and what they depend on, the step takes {took}"


def render_facts(*facts: tuple[str, str]) -> RenderableType:
    """Render lines of a label and a text, aligned with those of the source."""
    return make_facts_table(*facts, label_chars=len("source GPU"))


def describe_module_coverage(report: TraceInfo) -> Iterator[tuple[str, str]]:
    """Describe how much of the kernel time modules launched, where they are recorded."""
    if report.modules:
        share = sum(row.share for row in report.modules if row.depth == 0 and row.path)
        modules = sum(row.modules for row in report.modules if row.path)
        yield (
            "modules",
            f"{format_percent(share)} of kernel time was launched by "
            f"{format_quantity(modules, 'module')}: tracekit report",
        )


MOST_FINDINGS = 6


def render_info(report: TraceInfo) -> RenderableType:
    """Render the content of a trace, how much of it can be modelled, and the replay error."""
    coverage = report.coverage
    inferred = f" ({format_percent(coverage.inferred)} inferred)" if coverage.inferred else ""
    work = (
        f"{format_percent(coverage.work)} of kernel time has its work known{inferred}, "
        f"{format_percent(coverage.family)} only a family, {format_percent(coverage.unknown)} neither"
    )
    unknown = [kernel for kernel in report.kernels if not kernel.work_known][:10]
    return Group(
        render_source(report, is_checked=True),
        render_facts(
            *([("steps", numbers)] if (numbers := report.source.step_numbers) else []),
            ("coverage", work),
            *describe_tables(report.source.tables),
            ("host", describe_host(report.source)),
            *describe_module_coverage(report),
        ),
        *_render_section(
            "largest kernels without known work", terminal_tables.make_measured_table(unknown) if unknown else None
        ),
        *_render_section(
            "faster than their work allows",
            terminal_tables.make_over_bound_table(report) if report.over_bound else None,
        ),
        *_render_warnings(report),
    )


def render_measured(report: Report, top: int) -> RenderableType:
    """Render where the measured step's time goes, and its bottlenecks."""
    return Group(
        render_source(report),
        *_render_section(SERVING_TITLE, _render_serving(report)),
        *_render_section(TIME_TITLE, Group(TimeBars(report.bars), *render_owners(report), *render_phases(report))),
        *_render_section(PEAK_TITLE, render_peak_use(report, with_parts=True)),
        *_render_section("time by module", render_modules(report) if report.modules else None),
        *_render_section("who waits for whom, per step", render_ranks(report) if report.ranks else None),
        *_render_section("communication, per step", render_collectives(report) if report.communication else None),
        *_render_section("why the GPU was idle, in % of the step", render_idle(report)),
        *_render_section("critical path, in % of it", terminal_tables.render_critical_path(report)),
        *_render_section("if GPU or CPU were faster", terminal_tables.render_speed_lines(report)),
        *_render_section("what if", _render_what_if(report)),
        *_render_section("findings", _render_findings(report)),
        *_render_section(
            _format_kernel_count(report, top),
            terminal_tables.make_measured_table(report.kernels[:top]) if top else None,
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
        *_render_section(SERVING_TITLE, _render_serving(report)),
        *_render_section("what limits it there", _render_limits(report)),
        *_render_section(f"{ENERGY_TITLE}{_count_best(report)}", render_energy(best)),
        *_render_section("what if", _render_what_if(report)),
        *_render_section(f"{TIME_TITLE}{_count_best(report)}", TimeBars(best.compared_bars)),
        *_render_section(f"{PEAK_TITLE}{_count_best(report)}", render_peak_use(best)),
        *_render_section(
            _format_kernel_count(report, top), terminal_tables.make_predicted_table(best, top) if top else None
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
PEAK_TITLE = "how much of the GPU's peak it uses, in % of the step"


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
        parts.append(Text(describe_batches(served)))
        table = make_grid(("", "word"), *((heading, "number") for heading in list_serving_headings(served)))
        for row in build_serving_rows(served):
            table.add_row(*row)
        parts.append(table)
    return Group(*parts, *(Text(note.render(), style="dim") for note in report.serving.notes))


def render_energy(report: TargetsReport) -> RenderableType:
    """Render what a step's energy is estimated to be, here and on each target."""
    table = make_grid(("", "word"), *((heading, "number") for heading in list_energy_headings(report)))
    for row in build_energy_rows(report):
        table.add_row(*row)
    return table


def _render_what_if(report: Report) -> RenderableType | None:
    if not report.what_if:
        return None
    table = make_plain_table()
    for heading in list_edit_headings(report):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in build_edit_rows(report):
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


def _render_warnings(report: TraceInfo) -> Iterator[RenderableType]:
    for warning in report.warnings:
        yield Text(f"warning: {warning} [{warning.code}]", style="yellow")


def render_streams(streams: Sequence[StreamTime]) -> RenderableType:
    """Render one line per stream."""
    return Group(Text(), Text("streams", style="bold"), *map(_render_stream, streams))


def render_copies(copies: Sequence[CopyTime]) -> RenderableType:
    """Render one line per kind of copies."""
    return Group(Text(), Text("copies", style="bold"), *map(_render_copy, copies))


def _render_copy(copy: CopyTime) -> Text:
    ends = f" ({copy.memories})" if copy.memories else ""
    limit = f" of {format_number(copy.limit_gbps)}" if copy.limit_gbps else ""
    rate = "" if copy.gbps is None else f", {format_number(copy.gbps)}{limit} GB/s"
    return Text(f"  {copy.kind}{ends}: {format_count(copy.count)} in {format_duration(copy.time_us)}{rate}")


def name_stream(stream: StreamTime) -> str:
    """Return the name of a stream: its rank (if recorded), GPU and stream number."""
    rank = "" if stream.rank is None else f"rank {stream.rank} "
    return f"{rank}GPU {stream.device} stream {stream.stream}"


def _render_stream(stream: StreamTime) -> Text:
    why = ", ".join(f"{cause.replace('_', ' ')} {format_duration(time_us)}" for cause, time_us in stream.causes)
    worked = f"  {name_stream(stream)}: works {format_duration(stream.busy_us)}, idle {format_duration(stream.idle_us)}"
    queued = f", {stream.queued:.1f} queued (at most {stream.most_queued})" if stream.most_queued else ""
    return Text.assemble(worked + queued, (f": {why}" if why else "", "dim"))


EDGE_HEADINGS = ("edge", "edges", "lag µs", "10 %", "90 %", "binds", "then later by µs")


def append_graph_check(
    shown: RenderableType,
    found: GraphSelfCheck | None,
    streams: Sequence[StreamTime] = (),
    copies: Sequence[CopyTime] = (),
) -> RenderableType:
    """Append stream times, copies and the graph check to a screen; without a check return the screen unchanged."""
    if found is None:
        return shown
    sections = [*([render_streams(streams)] if streams else []), *([render_copies(copies)] if copies else [])]
    return Group(shown, *sections, render_graph_check(found))


def render_graph_check(found: GraphSelfCheck) -> RenderableType:
    """Render the replay errors and one table row per edge kind."""
    table = make_plain_table()
    for heading in EDGE_HEADINGS:
        table.add_column(heading, justify="left" if heading == "edge" else "right")
    for edge, edges, lag, low, high, binds, beyond in found.edge_kind_stats.iter_rows():
        later = "–" if beyond is None else f"{beyond:,.2f}"
        table.add_row(edge, f"{edges:,}", f"{lag:,.2f}", f"{low:,.2f}", f"{high:,.2f}", f"{binds:,}", later)
    half, most = (found.start_error_us[part] for part in (0.5, 0.99))
    return Group(
        Text(),
        Text("dependency graph", style="bold"),
        Text(f"  with what was measured beyond the lags the replay is off by {found.exact_error_ns} ns"),
        Text(
            f"  without, half of the kernels start within {half:,.1f} µs of the measured time, 99 % within {most:,.1f}"
        ),
        Text(
            f"  {found.recorded_waits:,} waits recorded, {found.inferred_waits:,} inferred from times and names; "
            f"{found.dropped:,} inferred edges left out, as they contradict others"
        ),
        Text(),
        table,
    )


def as_dict(found: GraphSelfCheck | None) -> dict[str, Any] | None:
    """Return the graph check as a dictionary for JSON; ``None`` without a check."""
    if found is None:
        return None
    return {
        "exact_error_ns": found.exact_error_ns,
        "start_error_us": {f"{100 * part:g}": error for part, error in found.start_error_us.items()},
        "recorded_waits": found.recorded_waits,
        "inferred_waits": found.inferred_waits,
        "dropped_edges": found.dropped,
        "edges": found.edge_kind_stats,
    }


def append_rules(shown: RenderableType, rules: Sequence[Rule], without: Sequence[str]) -> RenderableType:
    """Append the rules to a screen: name, what each infers, and its evidence."""
    table = make_plain_table()
    table.add_column("rule")
    table.add_column("infers, and evidence")
    for rule in rules:
        name = f"{rule.name} (off)" if rule.name in without else rule.name
        table.add_row(name, f"{rule.summary} {rule.evidence}")
    return Group(shown, Text(), Text("inference rules (--without-rule)", style="bold"), table)
