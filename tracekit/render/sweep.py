"""Render a sweep over layouts as text, Markdown, spreadsheet, Parquet and JSON."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.escape import to_markdown
from tracekit.format import format_dollars, format_duration, format_interval, format_number, format_percent
from tracekit.messages import Message, findings, predictions
from tracekit.messages import predictions as told
from tracekit.messages.predictions import COSTS_ALONE
from tracekit.parallelism.layout import Layout
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.note_order import compute_effect_us
from tracekit.prediction.sweep import KNEE_EFFICIENCY, TIED_THROUGHPUT_FRACTION, SweepEntry, count_replicas
from tracekit.render.facts import format_fit
from tracekit.render.json import describe_layout
from tracekit.render.json import dump_document as json_document
from tracekit.render.markdown import format_table as markdown_table
from tracekit.render.screen import ColumnKind, Grid, GridColumn
from tracekit.render.tables import render_sheets, to_parquet
from tracekit.reporting.figure import Figure
from tracekit.reporting.sweep import SweepReport

GIB = 2**30
COLUMN_KINDS: dict[str, ColumnKind] = {
    "on": "word",
    "layout": "word",
    "recompute": "word",
    "ranks": "figure",
    "step": "figure",
    "$/1k": "figure",
    "$/1M": "figure",
}
"""By heading; other columns are numbers that a narrow screen may drop."""

SWEEP_LIMITS = {
    "host": findings.CPU_LIMITS_SWEEP,
    "communication": findings.COMMUNICATION_LIMITS_SWEEP,
    "gpu": findings.GPU_LIMITS_SWEEP,
    "latency": findings.LATENCY_LIMITS_SWEEP,
    "unexplained": findings.UNEXPLAINED_LIMITS_SWEEP,
    "host or gpu": findings.CPU_OR_GPU_LIMITS_SWEEP,
    "latency or gpu": findings.LATENCY_OR_GPU_LIMITS_SWEEP,
    "gpu or host": findings.GPU_OR_CPU_LIMITS_SWEEP,
}
"""Sentences by the resource that limits a step."""

CellFormatter = Callable[[SweepEntry], str]


def render_sweep(sweep: SweepReport, top: int) -> RenderableType:
    """Render the layouts as text, the one with the highest throughput first."""
    shown = sweep.entries[:top]
    columns = _build_columns(sweep)
    table = Grid([GridColumn(heading, COLUMN_KINDS.get(heading, "number")) for heading in columns], gap=1)
    for entry in shown:
        table.add_row(*(cell(entry) for cell in columns.values()))
    left_out = len(sweep.entries) - len(shown)
    more = [Text(f"{left_out} more: --top {len(sweep.entries)}", "dim")] if left_out else []
    source = Text.assemble(("trace      ", "bold"), f"{sweep.trace} · {sweep.layout}")
    said = [Text(str(line)) for line in (*_describe_knees(sweep), *_describe_limits(sweep))]
    notes = [Text(f"note: {note}", "dim") for note in (*_explain_signs(sweep), *_collect_notes(sweep))]
    refused = [Text(f"left out: {why}", "yellow") for why in sweep.refused]
    doubts = [Text(f"warning: {doubt}", "yellow") for doubt in sweep.warnings]
    answer = Text(" ".join(map(str, _describe_best(sweep))), "bold")
    return Group(answer, Text(), source, Text(), table, *more, Text(), *said, *notes, *refused, *doubts)


def render_markdown(sweep: SweepReport) -> str:
    """Return all layouts as Markdown."""
    columns = _build_columns(sweep)
    rows = [[cell(entry) for cell in columns.values()] for entry in sweep.entries]
    said = [*_describe_knees(sweep), *_describe_limits(sweep)]
    said += [*_explain_signs(sweep), *_collect_notes(sweep)]
    lines = [_to_markdown(line) for line in said]
    lines += [f"left out: {_to_markdown(why)}" for why in sweep.refused]
    lines += [f"warning: {_to_markdown(doubt)}" for doubt in sweep.warnings]
    title = f"# {to_markdown(sweep.trace)} in {len(rows)} layouts"
    answer = " ".join(map(_to_markdown, _describe_best(sweep)))
    return (
        "\n".join([title, "", answer, "", *markdown_table([*columns], rows), "", *(f"- {line}" for line in lines)])
        + "\n"
    )


def _to_markdown(message: Message) -> str:
    return message.render(escape=to_markdown)


def render_workbook(sweep: SweepReport) -> bytes:
    """Return all layouts as an .xlsx file.

    Raises:
        TracekitError: XlsxWriter isn't installed.
    """
    return render_sheets({"layouts": sweep.table})


def _build_columns(sweep: SweepReport) -> dict[str, CellFormatter]:
    """Map headings to cell formatters, without columns that are constant or empty."""
    numbers = _number_clusters(sweep)
    columns: dict[str, CellFormatter] = {
        "on": lambda entry: numbers[entry.prediction.label],
        "ranks": lambda entry: str(entry.prediction.ranks),
        "layout": lambda entry: _shorten_layout(entry.prediction.layout or Layout()),
        "recompute": lambda entry: entry.recompute or "none",
        "micro": lambda entry: str(entry.prediction.pipeline.micro_batches) if entry.prediction.pipeline else "",
        "batch": lambda entry: f"{_get_batch(entry):g}x",
        "step": lambda entry: format_duration(entry.prediction.step.step_time_us),
        "90 % interval": lambda entry: format_interval(
            entry.prediction.low_us, entry.prediction.high_us, entry.prediction.step.step_time_us
        ),
        f"{sweep.unit}/s": lambda entry: f"{'≈' if entry.is_tied else ''}{format_number(entry.per_second)}",
        "per GPU": lambda entry: format_percent(100 * entry.efficiency),
        "$/1k": lambda entry: format_dollars(entry.prediction.dollars_per_1000_steps),
        "$/1M": lambda entry: format_dollars(entry.dollars_per_million),
        **_build_loss_columns(sweep),
        "bubble": lambda entry: (
            format_percent(100 * entry.prediction.pipeline.bubble) if entry.prediction.pipeline else ""
        ),
        "GiB, fits": lambda entry: _format_memory(entry.prediction.memory),
        "comm": lambda entry: format_duration(entry.prediction.step.exposed_comm_us),
    }
    if len(sweep.knees) == 1:
        del columns["on"]
    if len({entry.recompute for entry in sweep.entries}) == 1:
        del columns["recompute"]
    if all(_get_batch(entry) == 1 for entry in sweep.entries):
        del columns["batch"]
    if all(entry.prediction.ranks == count_replicas(entry.prediction) for entry in sweep.entries):
        del columns["layout"]
    if len({entry.prediction.pipeline.micro_batches for entry in sweep.entries if entry.prediction.pipeline}) < 2:
        del columns["micro"]
    if all(entry.prediction.pipeline is None for entry in sweep.entries):
        del columns["bubble"]
    if all(entry.prediction.step.exposed_comm_us == 0 for entry in sweep.entries):
        del columns["comm"]
    if all(entry.prediction.dollars_per_1000_steps is None for entry in sweep.entries):
        del columns["$/1k"], columns["$/1M"]
    return columns


def _build_loss_columns(sweep: SweepReport) -> dict[str, CellFormatter]:
    """Return the columns of time and dollars to the same loss, as multiples of the least, where that is asked."""
    if all(entry.work == 1 for entry in sweep.entries):
        return {}
    best = max(entry.progress_per_second for entry in sweep.entries)
    costs = [one for entry in sweep.entries if (one := entry.dollars_for_progress)]
    times: dict[str, CellFormatter] = {"to a loss": lambda entry: f"{best / entry.progress_per_second:.2f}x"}
    if costs:
        times["$ to it"] = lambda entry: f"{(entry.dollars_for_progress or 0) / min(costs):.2f}x"
    return times


def _get_batch(entry: SweepEntry) -> float:
    """Return a rank's batch, as a multiple of the trace's."""
    return entry.prediction.layout.batch if entry.prediction.layout else 1.0


def _shorten_layout(layout: Layout) -> str:
    """Format a layout for a column, such as ``fsdp8 tp2``."""
    text = str(layout).partition("= ")[2].replace("sequence parallel", "seq")
    return re.sub(r"dp(\d+)\(sharded\)", r"fsdp\1", text.replace(" x ", "_").replace(" ", "")).replace("_", " ")


def _number_clusters(sweep: SweepReport) -> dict[str, str]:
    """Assign each cluster a number, as cluster names are too long for a column."""
    return {label: f"#{number}" for number, label in enumerate(sweep.knees, 1)}


def _format_memory(memory: MemoryFit) -> str:
    bounds = [format_number(size / GIB) for size in (memory.min_bytes, memory.max_bytes) if size is not None]
    return f"{'–'.join(bounds)} {format_fit(memory)}" if bounds else format_fit(memory)


def _describe_best(sweep: SweepReport) -> Iterator[Message]:
    """Yield what the layout that gets most done gains over the traced job, and what it costs."""
    entry = sweep.entries[0]
    best = entry.prediction
    step = Figure(best.step.step_time_us, best.low_us, best.high_us)
    parallelism = (best.layout or Layout()).parallelism
    layout = parallelism + (f", recomputing {entry.recompute}" if entry.recompute else "")
    if sweep.has_baseline:
        speedup = step.invert(sweep.step_time_us * best.batch_ratio).ordered
        yield predictions.BEST_LAYOUT(ranks=best.ranks, target=best.name, layout=layout, speedup=speedup)
    else:
        per_second = step.invert(entry.per_second * best.step.step_time_us).ordered
        yield predictions.BEST_LAYOUT_ALONE(
            ranks=best.ranks, target=best.name, layout=layout, per_second=per_second, unit=sweep.unit
        )
    if best.price is not None and entry.dollars_per_million is not None:
        mean = Figure(best.step.mean_us, best.mean_low_us, best.mean_high_us)
        dollars = mean.scale(entry.dollars_per_million / best.step.mean_us)
        yield COSTS_ALONE(price=best.price, amount=1_000_000, units=sweep.unit, dollars=dollars.ordered)


def _describe_knees(sweep: SweepReport) -> Iterator[Message]:
    """Yield each cluster's name and the number of ranks up to which more ranks help, if sizes vary."""
    numbers = _number_clusters(sweep) if len(sweep.knees) > 1 else {}
    for label, ranks in sweep.knees.items():
        named = predictions.CLUSTER_NUMBERED(number=numbers[label], cluster=label) if numbers else None
        sizes = {entry.prediction.ranks for entry in sweep.entries if entry.prediction.label == label}
        if ranks and len(sizes) > 1:
            yield predictions.RANKS_THAT_HELP(cluster=named or label, ranks=ranks, kept_pct=100 * KNEE_EFFICIENCY)
        elif named:
            yield named


def _describe_limits(sweep: SweepReport) -> Iterator[Message]:
    """Yield a message on the bottleneck of each cluster's layout with the highest throughput."""
    found, names = sweep.limits, _number_clusters(sweep)
    for kind in dict.fromkeys(one.kind for one in found.values()):
        alike = {label: one for label, one in found.items() if one.kind == kind}
        shares = [one.share for one in alike.values()]
        yield SWEEP_LIMITS[kind](clusters=[names[label] for label in alike], shares_pct=shares)


def _explain_signs(sweep: SweepReport) -> Iterator[Message]:
    """Yield explanations of the table's signs and headings."""
    priced = any(entry.dollars_per_million is not None for entry in sweep.entries)
    if any(entry.is_tied for entry in sweep.entries):
        tied = predictions.TIED_LAYOUTS_BY_PRICE if priced else predictions.TIED_LAYOUTS
        yield tied(tied_pct=100 * TIED_THROUGHPUT_FRACTION)
    if sweep.unit == "steps":
        yield predictions.STEPS_COUNTED()
    if any(entry.prediction.memory.fits is False for entry in sweep.entries):
        yield predictions.UNFIT_LAYOUTS_LAST()
    if any(entry.prediction.memory.fits is None for entry in sweep.entries):
        yield predictions.LAYOUT_FIT_UNKNOWN()
    if priced:
        yield predictions.DOLLAR_COLUMNS(unit=sweep.unit)


def _collect_notes(sweep: SweepReport) -> list[Message]:
    """Collect the notes that apply to every layout."""
    common = [*_list_common_notes(sweep)]
    staged = any(entry.prediction.pipeline for entry in sweep.entries)
    batch = told.SWEEP_KEEPS_MICRO_BATCH() if staged else told.SWEEP_KEEPS_BATCH()
    assumed = [one for one in (*sweep.assumptions, sweep.straggler_note) if one and one not in common]
    said = any(note.template is told.BATCH_PER_RANK_KEPT for note in common)
    return [*([] if said else [batch]), *assumed, *common]


def _list_common_notes(sweep: SweepReport) -> Iterator[Message]:
    """Yield the notes that all layouts have, and the one on the host of the layout where it matters most."""
    own = [set(entry.prediction.notes) for entry in sweep.entries]
    yield from (note for note in sweep.entries[0].prediction.notes if all(note in notes for notes in own))
    hosts = [note for notes in own for note in notes if note.template is told.HOST_TIME_KEPT]
    if len(set(hosts)) > 1:
        yield max(hosts, key=lambda note: compute_effect_us(note, 0.0) or 0.0)


def encode_parquet(sweep: SweepReport) -> bytes:
    """Return all layouts as Parquet."""
    return to_parquet(sweep.table)


def as_json(sweep: SweepReport) -> str:
    """Return the JSON that ``tracekit sweep --json`` prints."""
    body = {
        "source": {
            "trace": sweep.trace,
            "gpu": sweep.gpu,
            "layout": describe_layout(sweep.layout),
            "step_time_us": sweep.step_time_us,
        },
        "decision": [*_describe_best(sweep)],
        "unit": sweep.unit,
        "layouts": [_serialize_entry(entry) for entry in sweep.entries],
        "knees": dict(sweep.knees),
        "limits": sweep.limits,
        "refused": sweep.refused,
        "notes": [*_describe_knees(sweep), *_describe_limits(sweep), *_collect_notes(sweep)],
        "warnings": sweep.warnings,
    }
    return json_document(body)


def _serialize_entry(entry: SweepEntry) -> dict[str, Any]:
    one = entry.prediction
    return {
        "cluster": one.label,
        "gpu": one.gpu,
        "layout": describe_layout(one.layout),
        "recompute": entry.recompute or None,
        "step_time_us": one.step.step_time_us,
        "low_us": one.low_us,
        "high_us": one.high_us,
        "pipeline": one.pipeline,
        "exposed_comm_us": one.step.exposed_comm_us,
        "per_second": entry.per_second,
        "efficiency": entry.efficiency,
        **({"progress_per_second": entry.progress_per_second, "work": entry.work} if entry.work != 1 else {}),
        "memory_least_bytes": one.memory.min_bytes,
        "memory_most_bytes": one.memory.max_bytes,
        "fits_in_memory": one.memory.fits,
        "dollars_per_1000_steps": one.dollars_per_1000_steps,
        "dollars_per_million": entry.dollars_per_million,
        "as_the_one_before": entry.is_tied,
        "notes": one.notes,
    }
