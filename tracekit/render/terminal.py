"""Render the report for a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tracekit.analysis.embedding_tables import EmbeddingTables
from tracekit.format import (
    format_bytes,
    format_count,
    format_duration,
    format_interval,
    format_number,
    format_percent,
    format_quantity,
    shorten,
    shorten_kernel_name,
)
from tracekit.prediction.model import PredictedStep
from tracekit.render import costs, critical_path, energy, kernel_tables, serving, what_if_rows
from tracekit.render.bars import TimeBars
from tracekit.render.grid import (
    ColumnKind,
    append_omitted_count,
    make_facts_table,
    make_grid,
    make_plain_table,
    make_time_list,
)
from tracekit.render.notes import choose_notes, collect_notes
from tracekit.render.sentences import (
    describe_step_samples,
    format_fit,
    format_rank,
    format_step_count,
    is_per_sample,
    keep_best,
    merge_target_notes,
    name_place,
    split_answer,
    sum_owner_shares,
)
from tracekit.replay.step_time import StepTime
from tracekit.reporting.findings.bottleneck import merge_bottlenecks
from tracekit.reporting.findings.finding import Finding
from tracekit.reporting.model import Report
from tracekit.reporting.sections.idle import IdleTime
from tracekit.reporting.sections.source import SourceSummary

MOST_TARGETS = 20
MOST_DETAILED_TARGETS = 6
MOST_RANKS = 10
MOST_FINDINGS = 6
MOST_MODULES = 24
MIN_MODULE_PCT = 1.0
MIN_SHARE_PCT = 0.5
MIN_OWNER_PCT = 0.1
MAX_WHERE_CHARS = 60


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
        _render_source(report),
        _render_facts(
            ("coverage", work),
            *_describe_tables(report.source.tables),
            ("host", _describe_host(report.source)),
            *_describe_module_coverage(report),
        ),
        *_render_section(
            "largest kernels without known work", kernel_tables.make_measured_table(unknown) if unknown else None
        ),
        *_render_section(
            "faster than their work allows", kernel_tables.make_over_bound_table(report) if report.over_bound else None
        ),
        *_render_warnings(report),
    )


def _describe_tables(tables: EmbeddingTables | None) -> Iterator[tuple[str, str]]:
    """Describe the embedding tables of a recommender, where there are some."""
    if tables is None:
        return
    widths = sorted({tables.least_width, tables.most_width})
    held = f"{format_bytes(tables.weight_bytes)} of weights on the GPUs"
    elsewhere = f" ({tables.on_host} of them lie elsewhere)" if tables.on_host else ""
    updated = f", updated by {' and '.join(tables.optimizers)}" if tables.optimizers else ""
    count = format_quantity(tables.tables, "embedding table")
    looked_up = f"{tables.indices:,} rows looked up in a step"
    yield "tables", f"{count}{elsewhere}, rows of {' to '.join(map(str, widths))}, {held}; {looked_up}{updated}"


def _describe_host(source: SourceSummary) -> str:
    """Describe how fast the trace's host is."""
    if source.host_speed is None:
        return "too few of PyTorch's ops tell its speed"
    said = f"{format_number(source.host_speed)} times as fast as the reference host, by {source.host_ops} ops"
    if source.usual_host_speed is None:
        return said
    return (
        f"{said}; {format_number(source.host_speed / source.usual_host_speed)} times as the usual one beside that GPU"
    )


def render_measured(report: Report, top: int) -> RenderableType:
    """Render where the measured step's time goes, and its bottlenecks."""
    return Group(
        _render_source(report),
        *_render_section(serving.TITLE, _render_serving(report)),
        *_render_section(TIME_TITLE, Group(TimeBars(report.bars), *_render_owners(report), *_render_phases(report))),
        *_render_section("time by module", _render_modules(report) if report.modules else None),
        *_render_section("who waits for whom, per step", _render_ranks(report) if report.ranks else None),
        *_render_section("why the GPU was idle, in % of the step", _render_idle(report)),
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
        *_render_answer(report),
        _render_source(report),
        *_render_section("predicted step", _render_targets(report)),
        *_render_section(serving.TITLE, _render_serving(report)),
        *_render_section("what limits it there", _render_limits(report)),
        *_render_section(f"{energy.TITLE}{_count_best(report)}", _render_energy(best)),
        *_render_section("what if", _render_what_if(report)),
        *_render_section(f"{TIME_TITLE}{_count_best(report)}", TimeBars(best.bars)),
        *_render_section(
            _format_kernel_count(report, top), kernel_tables.make_predicted_table(best, top) if top else None
        ),
        *_render_notes(report, all_notes=all_notes),
        *_render_warnings(report),
    )


def _count_best(report: Report) -> str:
    """Say how many targets a section shows, where it doesn't show all."""
    left = len(report.targets) - MOST_DETAILED_TARGETS
    return f" (the {MOST_DETAILED_TARGETS} best targets; all: -o report.html)" if left > 0 else ""


def _render_answer(report: Report) -> Iterator[RenderableType]:
    """Render the decision: what a prediction is asked for."""
    if report.decision:
        target, speed, rest = split_answer(report.decision.sentence)
        yield Text.assemble((f"{target}: {speed}", "bold"), " ", " ".join(rest))
        yield Text()


def _format_kernel_count(report: Report, top: int) -> str:
    return f"top {min(top, len(report.kernels))} of {format_quantity(len(report.kernels), 'kernel')}"


def _render_source(report: Report) -> RenderableType:
    source, replay = report.source, report.replay
    together = f" · {source.measured} of {source.ranks} ranks together"
    rank = together if source.measured > 1 else f" · rank {source.rank} of {source.ranks}" if source.ranks > 1 else ""
    exposed = f", only communicating {format_duration(source.exposed_comm_us)}" if source.exposed_comm_us else ""
    waiting = f" ({format_duration(source.waiting_us)} of it waiting for other ranks)" if source.waiting_us else ""
    derived = f"{format_duration(replay.derived_wait_us)} of waits derived, not copied"
    replayed = f"{format_duration(replay.step_time_us)} ({replay.error_pct:+z.2f} %) from the {source.label} kernels"
    gpu = f"{source.resolution} · {format_step_count(source)} · {format_quantity(source.kernels, 'kernel')} · shapes "
    return _render_facts(
        ("trace", source.trace + rank),
        ("events", report.events.summary.render_text()),
        ("source GPU", gpu + ("recorded" if source.shapes_recorded else "not recorded")),
        (
            "step",
            f"{format_duration(source.step_time_us)}: GPU busy {format_duration(source.kernel_time_us)}, "
            f"idle {format_duration(source.idle_us)}" + exposed + waiting,
        ),
        ("replay", f"{replayed}; {derived}" if replay.derived_wait_us else replayed),
    )


def _render_facts(*facts: tuple[str, str]) -> RenderableType:
    return make_facts_table(*facts, label_chars=len("source GPU"))


TIME_TITLE = "where the time goes, in % of the step"
PART_HEADINGS = ("GPU busy", "idle", "modelled")


def _render_section(title: str, body: RenderableType | None) -> Iterator[RenderableType]:
    if body is not None:
        yield Text()
        yield Text(title, style="bold")
        yield Padding(body, (0, 0, 0, 2))


def _render_targets(report: Report) -> RenderableType:
    by_sample = is_per_sample(report)
    is_long = len(report.targets) > MOST_DETAILED_TARGETS
    done = [*costs.build_cost_columns(report, brief=is_long)]
    priced: list[tuple[str, ColumnKind]] = [(one.heading, "number" if is_long else one.kind) for one in done]
    times = () if is_long else PART_HEADINGS
    ranked = ("rank",) * (len(report.targets) > 1)
    judged = () if all(target.memory.fits for target in report.targets) else ("fits",)
    table = make_grid(
        ("", "word"), *((rank, "mark") for rank in ranked), ("step", "figure"), ("90 % interval", "figure"),
        ("throughput" if by_sample else "speedup", "figure"), *priced,
        *((fit, "mark") for fit in judged), *((one, "number") for one in times),
    )  # fmt: skip
    source = report.source
    gpu = *("" for _ in judged), *(_format_times(source, "") if times else ())
    unranked = ("",) * len(ranked)
    table.add_row(
        source.label, *unranked, format_duration(source.step_time_us), "", "", *(one.measured for one in done), *gpu
    )
    for target in report.targets[:MOST_TARGETS]:
        table.add_row(
            Text(target.label, style="bold"),
            *(format_rank(report, target) for _ in ranked),
            Text(format_duration(target.step.step_time_us), style="bold"),
            format_interval(target.low_us, target.high_us),
            f"{format_number(target.speedup_per_sample)}x",
            *(one.format_target(target) for one in done),
            *(format_fit(target.memory) for _ in judged),
            *(_format_times(target.step, format_percent(target.coverage.modelled)) if times else ()),
        )
        if target.usual_host and not is_long:
            usual = target.usual_host
            span = format_interval(usual.low_us, usual.high_us)
            speedup = target.speedup_per_sample * target.step.step_time_us / usual.step_time_us
            others = len(done) + len(judged) + len(PART_HEADINGS)
            table.add_row(
                "  usual CPU",
                *unranked,
                format_duration(usual.step_time_us),
                span,
                f"{format_number(speedup)}x",
                *[""] * others,
            )
    said = [
        *merge_target_notes(report, describe_step_samples),
        *costs.explain_headings(done),
        *merge_target_notes(report, _describe_unmodelled),
    ]
    listed = append_omitted_count(table, len(report.targets) - MOST_TARGETS, "more: --json, -o report.html")
    return Group(listed, *(Text(line, style="dim") for line in said))


def _format_times(step: SourceSummary | StepTime, modelled: str) -> tuple[str, str, str]:
    """Format the cells below ``PART_HEADINGS``."""
    return format_duration(step.kernel_time_us), format_duration(step.idle_us), modelled


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


def _render_energy(report: Report) -> RenderableType:
    table = make_grid(("", "word"), *((heading, "number") for heading in energy.list_headings(report)))
    for row in energy.build_energy_rows(report):
        table.add_row(*row)
    return table


def _describe_unmodelled(target: PredictedStep) -> Iterator[str]:
    """Yield how the Kernel time that isn't modelled was predicted."""
    ways = (("scaled by the kind of kernel", target.coverage.scaled), ("kept as measured", target.coverage.unknown))
    said = [f"{format_percent(share)} {way}" for way, share in ways if share >= MIN_SHARE_PCT]
    if said:
        yield f"Kernel time that isn't modelled from shapes: {', '.join(said)}"


def _render_owners(report: Report) -> Iterator[Text]:
    """Yield whose the step's time is."""
    owners = [(name_place(owner), share) for owner, share in sum_owner_shares(report) if share >= MIN_OWNER_PCT]
    said = ", ".join(f"{owner} {format_percent(share)}" for owner, share in owners)
    yield Text(f"whose it is: {said}", style="dim")


def _render_phases(report: Report) -> Iterator[Text]:
    """Yield the kernel time of each phase, if there are several."""
    if len(report.phases) > 1:
        parts = (f"{row.phase} {format_duration(row.time_us)} ({format_percent(row.share)})" for row in report.phases)
        yield Text(f"kernel time: {', '.join(parts)}", style="dim")


def _render_ranks(report: Report) -> RenderableType:
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


def _describe_module_coverage(report: Report) -> Iterator[tuple[str, str]]:
    if report.modules:
        share = sum(row.share for row in report.modules if row.depth == 0 and row.path)
        modules = sum(row.modules for row in report.modules if row.path)
        yield (
            "modules",
            f"{format_percent(share)} of kernel time was launched by "
            f"{format_quantity(modules, 'module')}: tracekit report",
        )


def _render_modules(report: Report) -> RenderableType:
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


def _render_idle(report: Report) -> RenderableType | None:
    if not report.idle:
        return None
    return make_time_list((row.time_us, row.share, _describe_idle(row)) for row in report.idle)


def _describe_idle(row: IdleTime) -> Text:
    where = f"; mostly before {shorten(shorten_kernel_name(row.op), MAX_WHERE_CHARS)}" if row.op else ""
    where += f", launched in {row.line}" if row.line else ""
    return Text.assemble(str(row.meaning), (where, "dim"))


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


def _render_notes(report: Report, *, all_notes: bool) -> Iterator[RenderableType]:
    chosen = choose_notes(report)
    told = [Text(f"note: {note}", style="dim") for note in (collect_notes(report) if all_notes else chosen.texts)]
    if chosen.omitted and not all_notes:
        told.append(Text(f"{format_quantity(chosen.omitted, 'more note')}: -v", style="dim"))
    yield from (Text(), *told) if told else ()


def _render_warnings(report: Report) -> Iterator[RenderableType]:
    for warning in report.warnings:
        yield Text(f"warning: {warning} [{warning.code}]", style="yellow")
