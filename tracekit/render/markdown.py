"""The report as Markdown, for issues, merge requests and chats."""

from collections.abc import Iterator, Sequence

from tracekit.render import costs, edits
from tracekit.render.findings import grouped
from tracekit.render.words import counts_samples, fits, headline, larger_steps, notes, once
from tracekit.reporting.model import Report
from tracekit.reporting.sections.bars import families
from tracekit.units import counted, digits, duration, interval, percent, shape, shorten

KERNELS = 20
LONGEST_NAME = 60


def document(report: Report) -> str:
    """The report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    said = headline(report)
    yield from (f"# {said.before} {said.figure}{said.after}", "", said.detail, "")
    yield from _step(report)
    yield from ("", "## Where the time goes", "")
    yield from _time(report)
    if report.findings:
        yield from ("", "## What holds it back", "")
        for group in grouped(report.findings):
            first, titles = group[0], " ".join(one.title for one in group)
            saves = f" (saves up to {duration(first.saves_us)})" if first.saves_us else ""
            yield f"- **{titles}**{saves} {first.advice}"
    if report.what_if:
        yield from ("", "## What if", "")
        yield from table(
            ("edit", "", *edits.headings(report)), [(r.text, r.told, *r.figures) for r in edits.rows(report)]
        )
    yield from ("", "## Kernels", "")
    yield from _kernels(report)
    if told := notes(report):
        yield from ("", "## Notes", "", *(f"- {note}" for note in told))
    if report.warnings:
        yield from ("", "## Before you rely on this", "", *(f"- {warning}" for warning in report.warnings))
    origin = report.provenance
    digest = f" (SHA-256 `{origin.sha256}`)" if origin.sha256 else ""
    yield from ("", f"tracekit {origin.version} from `{origin.trace}`{digest}.")


def _step(report: Report) -> Iterator[str]:
    source = report.source
    by_sample = counts_samples(report)
    done = [*costs.columns(report)]
    busy = duration(source.kernel_time_us)
    measured = (
        source.gpu or "measured",
        duration(source.step_time_us),
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
            duration(target.step.step_time_us),
            interval(target.low_us, target.high_us),
            f"{digits(target.speedup_per_sample)}×",
            *(one.on(target) for one in done),
            fits(target.memory),
            duration(target.step.kernel_time_us),
            percent(target.coverage.modelled),
        )
        for target in report.targets
    ]
    faster = "per sample" if by_sample else "speedup"
    heads = ("GPU", "step", "90 % interval", faster, *(one.heading for one in done), "fits", "GPU busy", "modelled")
    yield from table(heads, [measured, *rows])
    for line in (*once(report, larger_steps), *costs.legend(report)):
        yield from ("", f"{line[0].upper()}{line[1:]}.")


def _time(report: Report) -> Iterator[str]:
    parts = [dict(bar.parts) for bar in report.bars]
    rows = [(family, *(duration(part.get(family, 0.0)) for part in parts)) for family in families(report.bars)]
    return table(("", *(bar.label for bar in report.bars)), rows)


def _kernels(report: Report) -> Iterator[str]:
    rows = [
        (
            kernel.family,
            f"`{shorten(kernel.op or kernel.name, LONGEST_NAME)}`",
            shorten(shape(kernel.shape), LONGEST_NAME),
            counted(kernel.count),
            duration(kernel.time_us),
            percent(kernel.share),
            "–" if kernel.utilization is None else percent(kernel.utilization),
            *map(duration, kernel.predicted_us),
        )
        for kernel in report.kernels[:KERNELS]
    ]
    heads = ("family", "op", "shape", "launches", "measured", "share", "% roof")
    yield from table((*heads, *(target.label for target in report.targets)), rows)
    if len(report.kernels) > KERNELS:
        yield from ("", f"{KERNELS} of {len(report.kernels):,} kernels; `-o kernels.csv` has all.")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table.

    Args:
        heads: Its headings.
        rows: Its cells, as many in each row.
    """
    for row in (heads, ["---"] * len(heads), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
