"""A sweep over layouts for people and machines."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.prediction.layout import Layout
from tracekit.prediction.memory import GIB, Memory
from tracekit.prediction.model import Prediction
from tracekit.prediction.notes import KEEPS_BATCH
from tracekit.prediction.sweep import ALIKE, KEPT, Entry, Sweep, replicas
from tracekit.render.dump import document as json_document
from tracekit.render.grid import Column, Grid
from tracekit.render.json import layout
from tracekit.render.markdown import table as markdown_table
from tracekit.render.tables import in_parquet
from tracekit.render.words import fits
from tracekit.render.xlsx import sheets
from tracekit.reporting.findings.target import Limit, limit
from tracekit.reporting.sections import idle, warnings
from tracekit.units import digits, dollars, duration, interval, many, percent, percent_between

Cell = Callable[[Entry], str]


def screen(sweep: Sweep, top: int) -> RenderableType:
    """The layouts, the one that gets most done first."""
    shown = sweep.entries[:top]
    columns = _columns(sweep)
    kinds = {"on": "word", "layout": "word"}
    table = Grid([Column(heading, kinds.get(heading, "number")) for heading in columns], gap=1)
    for entry in shown:
        table.add_row(*(cell(entry) for cell in columns.values()))
    left_out = len(sweep.entries) - len(shown)
    more = [Text(f"{left_out} more: --top {len(sweep.entries)}", "dim")] if left_out else []
    source = Text.assemble(("trace      ", "bold"), f"{sweep.run.trace.source} · {sweep.layout}")
    said = [Text(line) for line in (*_knees(sweep), *_limits(sweep))]
    notes = [Text(f"note: {note}", "dim") for note in (*_legend(sweep), *_notes(sweep))]
    refused = [Text(f"left out: {why}", "yellow") for why in sweep.refused]
    doubts = [Text(f"warning: {doubt}", "yellow") for doubt in _warnings(sweep)]
    return Group(source, Text(), table, *more, Text(), *said, *notes, *refused, *doubts)


def document(sweep: Sweep) -> str:
    """All layouts as Markdown."""
    columns = _columns(sweep)
    rows = [[cell(entry) for cell in columns.values()] for entry in sweep.entries]
    said = [*_knees(sweep), *_limits(sweep), *_legend(sweep), *_notes(sweep)]
    said += [f"left out: {why}" for why in sweep.refused]
    said += [f"warning: {doubt}" for doubt in _warnings(sweep)]
    title = f"# {sweep.run.trace.source} in {len(rows)} layouts"
    return "\n".join([title, "", *markdown_table([*columns], rows), "", *(f"- {line}" for line in said)]) + "\n"


def workbook(sweep: Sweep) -> bytes:
    """All layouts as an .xlsx file.

    Raises:
        TracekitError: XlsxWriter isn't installed.
    """
    return sheets({"layouts": sweep.table})


def _columns(sweep: Sweep) -> dict[str, Cell]:
    """Heading to cell; what is the same or empty in all rows is left out."""
    numbers = _numbers(sweep)
    columns: dict[str, Cell] = {
        "on": lambda entry: numbers[entry.prediction.label],
        "ranks": lambda entry: str(entry.prediction.ranks),
        "layout": lambda entry: _short(entry.prediction.layout or Layout()),
        "step": lambda entry: duration(entry.prediction.step.step_time_us),
        "90 % interval": lambda entry: interval(entry.prediction.low_us, entry.prediction.high_us),
        f"{sweep.unit}/s": lambda entry: f"{'≈' if entry.as_before else ''}{digits(entry.per_second)}",
        "per GPU": lambda entry: percent(100 * entry.efficiency),
        "$/1k": lambda entry: dollars(entry.prediction.dollars),
        "$/1M": lambda entry: dollars(entry.dollars),
        "bubble": lambda entry: percent(100 * entry.prediction.pipeline.bubble) if entry.prediction.pipeline else "",
        "GiB, fits": lambda entry: _memory(entry.prediction.memory),
        "comm": lambda entry: duration(entry.prediction.step.exposed_comm_us),
    }
    if len(sweep.knees) == 1:
        del columns["on"]
    if all(entry.prediction.ranks == replicas(entry.prediction) for entry in sweep.entries):
        del columns["layout"]
    if all(entry.prediction.pipeline is None for entry in sweep.entries):
        del columns["bubble"]
    if all(entry.prediction.step.exposed_comm_us == 0 for entry in sweep.entries):
        del columns["comm"]
    if all(entry.prediction.dollars is None for entry in sweep.entries):
        del columns["$/1k"], columns["$/1M"]
    return columns


def _short(layout: Layout) -> str:
    """Such as ``dp8 tp2``, for a column."""
    return str(layout).partition("= ")[2].replace(" x ", "_").replace(" ", "").replace("_", " ")


def _numbers(sweep: Sweep) -> dict[str, str]:
    """A number for each cluster, whose names are too long for a column."""
    return {label: f"#{number}" for number, label in enumerate(sweep.knees, 1)}


def _memory(memory: Memory) -> str:
    bounds = [digits(size / GIB) for size in (memory.least_bytes, memory.most_bytes) if size is not None]
    return f"{'–'.join(bounds)} {fits(memory)}" if bounds else fits(memory)


def _knees(sweep: Sweep) -> Iterator[str]:
    """The clusters' names, and up to how many ranks more of them help, where several sizes were tried."""
    numbers = _numbers(sweep) if len(sweep.knees) > 1 else {}
    for label, ranks in sweep.knees.items():
        named = f"{numbers[label]} is {label}" if numbers else label
        sizes = {entry.prediction.ranks for entry in sweep.entries if entry.prediction.label == label}
        if ranks and len(sizes) > 1:
            kept = f"each GPU keeps {100 * KEPT:.0f} % of its throughput in the smallest layout"
            yield f"{named}: up to {many(ranks, 'rank')} {kept}"
        elif numbers:
            yield named


def _limits(sweep: Sweep) -> Iterator[str]:
    """What sets the pace on the clusters, in the layout that gets most done there."""
    found, names = limits(sweep), _numbers(sweep)
    for kind in dict.fromkeys(one.kind for one in found.values()):
        alike = {label: one for label, one in found.items() if one.kind == kind}
        share = percent_between([one.share for one in alike.values()])
        one = next(iter(alike.values()))
        where = "" if len(names) == 1 else f"On {', '.join(names[label] for label in alike)} "
        said = f"{where}{one.said.format(share)}"
        yield f"{said[0].upper()}{said[1:]} in the layout that gets most done. {one.advice}"


def limits(sweep: Sweep) -> dict[str, Limit]:
    """What sets the pace in the layout that gets most done on each cluster, where one thing does.

    Args:
        sweep: The layouts.
    """
    best: dict[str, Prediction] = {}
    for entry in sweep.entries:
        best.setdefault(entry.prediction.label, entry.prediction)
    found = {label: limit(one) for label, one in best.items()}
    return {label: one for label, one in found.items() if one is not None}


def _legend(sweep: Sweep) -> Iterator[str]:
    """What signs and headings mean."""
    priced = any(entry.dollars is not None for entry in sweep.entries)
    if any(entry.as_before for entry in sweep.entries):
        order = ": cheaper ones come first" if priced else ", so that their order says nothing"
        yield f"≈ gets as much done as the line above, within {100 * ALIKE:g} %{order}"
    if sweep.unit == "steps":
        yield "steps of a replica are counted, as the trace doesn't tell its batch: --samples N says a rank's"
    if any(entry.prediction.memory.fits is False for entry in sweep.entries):
        yield "what doesn't fit into memory comes last"
    if any(entry.prediction.memory.fits is None for entry in sweep.entries):
        yield "?: the trace doesn't tell whether it fits into memory"
    if priced:
        yield f"$/1k: dollars for 1,000 steps, of which larger layouts do more; $/1M: for a million {sweep.unit}"


def _notes(sweep: Sweep) -> list[str]:
    """What is said of every layout."""
    own = [set(entry.prediction.notes) for entry in sweep.entries]
    common = [note for note in sweep.entries[0].prediction.notes if all(note in notes for notes in own)]
    weak = f"{KEEPS_BATCH}, so that the job's batch grows with its data-parallel ranks"
    if any(entry.prediction.pipeline for entry in sweep.entries):
        weak += "; with stages each micro-batch is as large as a traced pass"
    assumed = [one for one in (*sweep.assumed, sweep.straggling) if one and one not in common]
    said = any(note.startswith(KEEPS_BATCH) for note in common)
    return [*([] if said else [weak]), *assumed, *common]


def _warnings(sweep: Sweep) -> tuple[str, ...]:
    """What to know of the measured run first, as every report says it."""
    return warnings.build(sweep.run, idle.of(sweep.run))


def parquet(sweep: Sweep) -> bytes:
    """All layouts as Parquet."""
    return in_parquet(sweep.table)


def as_json(sweep: Sweep) -> str:
    """What ``tracekit sweep --json`` prints."""
    body = {
        "source": {
            "trace": sweep.run.trace.source,
            "gpu": sweep.run.gpu.slug if sweep.run.gpu else None,
            "layout": layout(sweep.layout),
            "step_time_us": sweep.run.measured.step_time_us,
        },
        "unit": sweep.unit,
        "layouts": [_entry(entry) for entry in sweep.entries],
        "knees": dict(sweep.knees),
        "limits": {label: {"kind": one.kind, "share": one.share} for label, one in limits(sweep).items()},
        "refused": list(sweep.refused),
        "warnings": _warnings(sweep),
    }
    return json_document(body)


def _entry(entry: Entry) -> dict[str, Any]:
    one = entry.prediction
    return {
        "cluster": one.label,
        "gpu": one.gpu,
        "layout": layout(one.layout),
        "step_time_us": one.step.step_time_us,
        "low_us": one.low_us,
        "high_us": one.high_us,
        "pipeline": dataclasses.asdict(one.pipeline) if one.pipeline else None,
        "exposed_comm_us": one.step.exposed_comm_us,
        "per_second": entry.per_second,
        "efficiency": entry.efficiency,
        "memory_least_bytes": one.memory.least_bytes,
        "memory_most_bytes": one.memory.most_bytes,
        "fits_in_memory": one.memory.fits,
        "dollars_per_1000_steps": one.dollars,
        "dollars_per_million": entry.dollars,
        "as_the_one_before": entry.as_before,
        "notes": one.notes,
    }
