"""The report on one terminal screen."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tracekit.prediction import Prediction
from tracekit.render import costs, critical, edits, kernels
from tracekit.render.bars import TimeBars
from tracekit.render.grid import and_more, grid, plain
from tracekit.render.words import counts_samples, fits, larger_steps, measured_steps, notes, once
from tracekit.reporting.findings.target import Bottleneck, sentence
from tracekit.reporting.model import Report
from tracekit.units import counted, digits, duration, interval, kernel_title, many, percent, shorten

MOST_RANKS = 10
MOST_FINDINGS = 6
MOST_MODULES = 24
SMALLEST_MODULE_PCT = 1.0
SMALLEST_SHARE_PCT = 0.5
LONGEST_WHERE = 60


def info(report: Report) -> RenderableType:
    """What is in the trace, how much of it can be modelled, and how well the replay fits."""
    coverage = report.coverage
    inferred = f" ({percent(coverage.inferred)} inferred)" if coverage.inferred else ""
    work = (
        f"{percent(coverage.work)} of GPU time has its work known{inferred}, "
        f"{percent(coverage.family)} only a family, {percent(coverage.unknown)} neither"
    )
    unknown = [kernel for kernel in report.kernels if not kernel.work_known][:10]
    return Group(
        _source(report),
        _line("coverage", work),
        *_module_coverage(report),
        *_section("largest kernels without known work", kernels.measured(unknown) if unknown else None),
        *_section("faster than their work allows", kernels.over_bound(report) if report.over_bound else None),
        *_warnings(report),
    )


def measured(report: Report, top: int) -> RenderableType:
    """Where the measured step's time goes and what holds it back."""
    return Group(
        _source(report),
        *_section("where the time goes", Group(TimeBars(report.bars), *_phases(report))),
        *_section("time by module", _modules(report) if report.modules else None),
        *_section("who waits for whom, per step", _ranks(report) if report.ranks else None),
        *_section("why the GPU was idle", _idle(report)),
        *_section("critical path", critical.path(report)),
        *_section("if GPU or CPU were faster", critical.speeds(report)),
        *_section("what if", _what_if(report)),
        *_section("findings", _findings(report)),
        *_section(_listed(report, top), kernels.measured(report.kernels[:top]) if top else None),
        *_warnings(report),
    )


def predicted(report: Report, top: int) -> RenderableType:
    """The step on other GPUs."""
    return Group(
        _source(report),
        *_section("predicted step", _targets(report)),
        *_section("what limits it there", _limits(report)),
        *_section("what if", _what_if(report)),
        *_section("where the time goes", TimeBars(report.bars)),
        *_section(_listed(report, top), kernels.predicted(report, top) if top else None),
        *_notes(report),
        *_warnings(report),
    )


def _listed(report: Report, top: int) -> str:
    return f"top {min(top, len(report.kernels))} of {many(len(report.kernels), 'kernel')}"


def _source(report: Report) -> RenderableType:
    source, replay = report.source, report.replay
    together = f" · {source.measured} of {source.ranks} ranks together"
    rank = together if source.measured > 1 else f" · rank {source.rank} of {source.ranks}" if source.ranks > 1 else ""
    exposed = f", only communicating {duration(source.exposed_comm_us)}" if source.exposed_comm_us else ""
    waiting = f" ({duration(source.waiting_us)} of it waiting for other ranks)" if source.waiting_us else ""
    gpu = f"{source.resolution} · {measured_steps(source)} · {many(source.kernels, 'kernel')} · shapes "
    return Group(
        _line("trace", source.trace + rank),
        _line("source GPU", gpu + ("recorded" if source.shapes_recorded else "not recorded")),
        _line(
            "step",
            f"{duration(source.step_time_us)}: GPU busy {duration(source.kernel_time_us)}, "
            f"idle {duration(source.idle_us)}" + exposed + waiting,
        ),
        _line(
            "replay",
            f"{duration(replay.step_time_us)} ({replay.error_pct:+z.2f} %) from the measured kernels; "
            f"{duration(replay.derived_wait_us)} of waits derived, not copied",
        ),
    )


def _line(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<11}", "bold"), text)


def _section(title: str, body: RenderableType | None) -> Iterator[RenderableType]:
    if body is not None:
        yield Text()
        yield Text(title, style="bold")
        yield Padding(body, (0, 0, 0, 2))


def _targets(report: Report) -> RenderableType:
    by_sample = counts_samples(report)
    done = [*costs.columns(report)]
    judged = () if all(target.memory.fits for target in report.targets) else ("fits",)
    table = grid(
        ("", "word"), ("step", "number"), ("90 % interval", "number"),
        ("per sample" if by_sample else "speedup", "number"), *((one.heading, "number") for one in done),
        *((fit, "mark") for fit in judged), ("GPU busy", "number"), ("idle", "number"), ("modelled", "number"),
    )  # fmt: skip
    source = report.source
    gpu = (*("" for _ in judged), duration(source.kernel_time_us), duration(source.idle_us), "")
    table.add_row("measured", duration(source.step_time_us), "", "", *(one.measured for one in done), *gpu)
    for target in report.targets:
        table.add_row(
            Text(target.label, style="bold"),
            Text(duration(target.step.step_time_us), style="bold"),
            interval(target.low_us, target.high_us),
            f"{digits(target.speedup_per_sample)}x",
            *(one.on(target) for one in done),
            *(fits(target.memory) for _ in judged),
            duration(target.step.kernel_time_us),
            duration(target.step.idle_us),
            percent(target.coverage.modelled),
        )
    said = [*once(report, larger_steps), *costs.legend(report), *once(report, _not_modelled)]
    return Group(table, *(Text(line, style="dim") for line in said))


def _not_modelled(target: Prediction) -> Iterator[str]:
    """How the rest of the GPU time was predicted."""
    ways = (("scaled by the kind of kernel", target.coverage.scaled), ("kept as measured", target.coverage.unknown))
    said = [f"{percent(share)} {way}" for way, share in ways if share >= SMALLEST_SHARE_PCT]
    if said:
        yield f"GPU time that isn't modelled from shapes: {', '.join(said)}"


def _phases(report: Report) -> Iterator[Text]:
    """What the kernels of each phase sum to, where there is more than one."""
    if len(report.phases) > 1:
        parts = (f"{row.phase} {duration(row.time_us)} ({percent(row.share)})" for row in report.phases)
        yield Text("kernels of " + ", ".join(parts), style="dim")


def _ranks(report: Report) -> RenderableType:
    """Those that hold the others up most, at most ten."""
    table = grid(
        ("rank", "number"), ("busy", "number"), ("waits", "number"), ("comes last", "number"), ("holds up", "number"),
        ("clock", "number"),
    )  # fmt: skip
    for rank in sorted(report.ranks, key=lambda rank: -rank.held_up_us)[:MOST_RANKS]:
        table.add_row(
            str(rank.rank),
            duration(rank.busy_us),
            duration(rank.wait_us),
            percent(rank.last),
            duration(rank.held_up_us),
            "–" if rank.clock_ahead_us is None else f"{round(rank.clock_ahead_us):+,} µs",
        )
    return and_more(table, len(report.ranks) - MOST_RANKS, "that hold up less: -o report.xlsx")


def _module_coverage(report: Report) -> Iterator[Text]:
    if report.modules:
        share = sum(row.share for row in report.modules if row.depth == 0 and row.path)
        modules = sum(row.modules for row in report.modules if row.path)
        yield _line(
            "modules",
            f"{percent(share)} of GPU time was launched by {many(modules, 'module')}: tracekit report",
        )


def _modules(report: Report) -> RenderableType:
    """The tree, without what is small."""
    table = grid(
        ("time", "number"), ("share", "number"), ("backward", "number"), ("own", "number"), ("kernels", "number"),
        ("module", "text"),
    )  # fmt: skip
    shown = [row for row in report.modules if row.share >= SMALLEST_MODULE_PCT][:MOST_MODULES]
    for row in shown:
        label = "  " * row.depth + row.path.rpartition(".")[2] if row.path else "launched by no module"
        times = (row.time_us, row.backward_us, row.own_us)
        time_us, backward, own = (duration(time) if time else "–" for time in times)
        table.add_row(time_us, percent(row.share), backward, own, counted(row.kernels), label)
    return and_more(table, len(report.modules) - len(shown), "smaller ones: -o report.html")


def _idle(report: Report) -> RenderableType | None:
    if not report.idle:
        return None
    lines = []
    for row in report.idle:
        where = f"; mostly before {shorten(kernel_title(row.op), LONGEST_WHERE)}" if row.op else ""
        where += f", launched in {row.line}" if row.line else ""
        lines.append(
            Text.assemble(f"{duration(row.time_us):>8} {percent(row.share):>6}  ", row.meaning, (where, "dim"))
        )
    if len(report.steps) > 1 and report.steps[0].first:
        lines.append(Text("in a mean step, the first one included", style="dim"))
    return Group(*lines)


def _what_if(report: Report) -> RenderableType | None:
    if not report.what_if:
        return None
    table = plain()
    for heading in edits.headings(report):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in edits.rows(report):
        table.add_row(*row.figures, Text.assemble((row.text, "bold"), ": " if row.text else "", row.told))
    return table


def _findings(report: Report) -> RenderableType | None:
    if not report.findings:
        return None
    lines = []
    for finding in report.findings[:MOST_FINDINGS]:
        saves = f" (saves up to {duration(finding.saves_us)})" if finding.saves_us else ""
        lines.append(Text.assemble("• ", finding.title, (saves, "bold"), " ", (finding.advice, "dim")))
    if len(report.findings) > MOST_FINDINGS:
        lines.append(Text(f"  and {len(report.findings) - MOST_FINDINGS} more: -o report.html", style="dim"))
    return Group(*lines)


def _limits(report: Report) -> RenderableType | None:
    """What most of the step hinges on, on the targets on which one thing does."""
    alike: dict[str, list[Bottleneck]] = {}
    for finding in report.findings:
        if isinstance(finding, Bottleneck):
            alike.setdefault(finding.limit, []).append(finding)
    lines = [Text.assemble(sentence(ones), " ", (ones[0].advice, "dim")) for ones in alike.values()]
    return Group(*lines) if lines else None


def _notes(report: Report) -> Iterator[RenderableType]:
    told = [Text(f"note: {note}", style="dim") for note in notes(report)]
    yield from (Text(), *told) if told else ()


def _warnings(report: Report) -> Iterator[RenderableType]:
    for warning in report.warnings:
        yield Text(f"warning: {warning}", style="yellow")
