"""Render what users of a served model wait for: terminal, JSON, a table of all loads, and the curve."""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.escape import to_html
from tracekit.format import format_bytes, format_duration, format_interval, format_number, format_quantity
from tracekit.render.charts.model import Axis, Chart, Series
from tracekit.render.charts.svg import draw_svg
from tracekit.render.json import dump_document
from tracekit.render.screen import ColumnKind, Grid, GridColumn, as_text
from tracekit.served.answer import DOLLARS_PER_MILLION, ServedTarget
from tracekit.served.simulate import RECORDED, LoadAnswer, Range, RequestLoad

TIMES = ("ttft", "tpot", "itl", "e2e")
DOLLARS = "$/M tokens"
RATES = {"tokens/s": "output_tokens_per_s", "J/token": "joules_per_token", DOLLARS: DOLLARS_PER_MILLION}
"""Figures of a load without percentiles, by their headings."""
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf")
BAR_WIDTH = 24
PER_GPU = "tokens_per_s_per_gpu"


def render_served(found: Sequence[ServedTarget]) -> RenderableType:
    """Render all targets: memory, the loads that were asked, the largest load, and the curve."""
    parts: list[RenderableType] = []
    for target in found:
        parts += [*_describe_target(target), Text()]
        answers = [*target.loads, *([target.largest.answer] if target.largest and target.largest.answer else [])]
        if answers:
            parts += [_render_loads(answers), Text()]
    if any(target.curve for target in found):
        parts += [Text("throughput over latency", "bold"), _render_curve(found), Text()]
    notes = dict.fromkeys(str(note) for target in found for note in target.notes)
    parts += [Text(f"note: {note}", "dim") for note in notes]
    return Group(*parts)


def _describe_target(target: ServedTarget) -> Iterator[Text]:
    memory = target.memory
    yield Text.assemble((target.gpu, "bold"), f" · {format_quantity(target.gpus, 'GPU')}")
    yield Text(
        f"  memory of a GPU  {format_bytes(memory.weight_bytes)} weights, {format_bytes(memory.working_bytes)} "
        f"activations and graphs, {format_bytes(memory.cache_bytes)} cache"
    )
    fitting = ", ".join(f"{count:,} of {tokens:,} tokens" for tokens, count in target.sequences.items() if count)
    yield Text(f"  sequences        {fitting}")
    if target.largest is not None:
        load = target.largest.load
        what = "requests a second" if target.largest.answer and target.largest.answer.load.rate else "requests at once"
        told = f"{format_number(load.likely)} {what} ({format_number(load.low)} to {format_number(load.high)})"
        yield Text(f"  under the limits {told if target.largest.answer else 'no load'}")


def _render_loads(answers: Sequence[LoadAnswer]) -> Grid:
    """Render a row for the median requests of each load, one for its interval, one for the slowest requests."""
    rates = {heading: name for heading, name in RATES.items() if all(name in one.figures for one in answers)}
    headings = [*(name.upper() for name in TIMES), *rates]
    kinds: dict[str, ColumnKind] = {DOLLARS: "figure", "TTFT": "figure", "TPOT": "figure"}
    columns = (GridColumn(heading, kinds.get(heading, "number")) for heading in headings)
    table = Grid([GridColumn("load", "word"), *columns], gap=1)
    for one in answers:
        medians = [one.figures[f"{name}_p50_ms"] for name in TIMES]
        totals = [one.figures[name] for name in rates.values()]
        table.add_row(
            f"{name_load(one.load)}, median",
            *(format_duration(1e3 * figure.likely) for figure in medians),
            *(format_number(figure.likely) for figure in totals),
        )
        table.add_row(
            "  90 % interval",
            *(format_interval(1e3 * figure.low, 1e3 * figure.high, 1e3 * figure.likely) for figure in medians),
            *(f"{format_number(figure.low)} to {format_number(figure.high)}" for figure in totals),
        )
        slowest = (one.figures[f"{name}_p99_ms"] for name in TIMES)
        table.add_row(
            "  99 % below", *(format_duration(1e3 * figure.likely) for figure in slowest), *("" for _ in rates)
        )
    return table


def name_load(load: RequestLoad) -> str:
    """Name a load in a few words."""
    if load == RECORDED:
        return "as recorded"
    return f"{format_number(load.rate)}/s" if load.rate else f"{load.concurrency} at once"


def _render_curve(found: Sequence[ServedTarget]) -> Grid:
    most = max(_count_per_gpu(target, one) for target in found for one in target.curve)
    headings = ("GPU", "at once", "TPOT", "TTFT", "tokens/s/GPU")
    table = Grid(
        [GridColumn(heading, "word" if heading == "GPU" else "figure") for heading in headings]
        + [GridColumn("", "word")]
    )
    for target in found:
        for one in target.curve:
            rate = _count_per_gpu(target, one)
            table.add_row(
                target.gpu,
                str(one.load.concurrency),
                format_duration(1e3 * one.figures["tpot_p50_ms"].likely),
                format_duration(1e3 * one.figures["ttft_p50_ms"].likely),
                format_number(rate),
                "█" * round(BAR_WIDTH * rate / most),
            )
    return table


def _count_per_gpu(target: ServedTarget, answer: LoadAnswer) -> float:
    return answer.figures["output_tokens_per_s"].likely / target.gpus


def build_curve(found: Sequence[ServedTarget]) -> Chart:
    """Build the chart of throughput over latency, a line for each target."""
    series = []
    for at, target in enumerate(one for one in found if one.curve):
        x = tuple(one.figures["tpot_p50_ms"].likely for one in target.curve)
        y = tuple(_count_per_gpu(target, one) for one in target.curve)
        name, colour = f"{target.gpus} x {target.gpu}", COLOURS[at % len(COLOURS)]
        texts = tuple(f"{name}: {one.load.concurrency} at once" for one in target.curve)
        series.append(Series(name=name, kind="lines", x=x, y=y, colour=colour))
        series.append(
            Series(
                name=f"{name}, loads", kind="points", x=x, y=y, colour=colour, texts=texts,
                sizes_px=(7.0,) * len(x), is_in_legend=False,
            )
        )  # fmt: skip
    return Chart(
        name="serving",
        title="Throughput over latency: output tokens/s of a GPU over ms per token, requests at once doubling",
        x=Axis("ms per output token (median)"),
        y=Axis("output tokens/s of a GPU"),
        series=tuple(series),
        height_px=440,
    )


def draw_curve(found: Sequence[ServedTarget]) -> str:
    """Draw the chart of throughput over latency as SVG."""
    return draw_svg(build_curve(found))


def render_text(found: Sequence[ServedTarget]) -> str:
    """Return what a wide terminal shows, without colours."""
    return as_text(render_served(found))


def render_page(found: Sequence[ServedTarget]) -> str:
    """Render a page without scripts: the chart and what the terminal shows."""
    text = to_html(render_text(found))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>tracekit serving</title>'
        f"<style>body{{font-family:sans-serif;max-width:70em;margin:auto}}pre{{overflow:auto}}</style>"
        f"<h1>Serving</h1>{draw_curve(found)}<pre>{text}</pre></html>\n"
    )


def list_rows(found: Sequence[ServedTarget]) -> pl.DataFrame:
    """List all loads, a row each, with the likely figures and their ends."""
    rows = []
    for target in found:
        asked = [("load", one) for one in target.loads]
        asked += [("largest", target.largest.answer)] if target.largest and target.largest.answer else []
        for kind, one in [*asked, *(("curve", one) for one in target.curve)]:
            row: dict[str, Any] = {"gpu": target.gpu, "gpus": target.gpus, "kind": kind}
            row |= {"concurrency": one.load.concurrency, "rate": one.load.rate}
            for name, figure in one.figures.items():
                row |= {name: figure.likely, f"{name}_low": figure.low, f"{name}_high": figure.high}
            rows.append(row)
    return pl.DataFrame(rows)


def as_json(found: Sequence[ServedTarget]) -> str:
    """Return the JSON that ``tracekit serving --json`` prints."""
    return dump_document({"targets": [_serialize_target(target) for target in found]})


def _serialize_target(target: ServedTarget) -> dict[str, Any]:
    memory, largest = target.memory, target.largest
    return {
        "gpu": target.gpu,
        "cluster": target.cluster.slug,
        "gpus": target.gpus,
        "memory": {
            "usable_bytes": memory.usable_bytes,
            "weight_bytes": memory.weight_bytes,
            "working_bytes": memory.working_bytes,
            "cache_bytes": memory.cache_bytes,
            "token_bytes": memory.token_bytes,
            "sequences": {str(tokens): count for tokens, count in target.sequences.items()},
        },
        "loads": [_serialize_load(target, one) for one in target.loads],
        "largest": None
        if largest is None
        else {
            "load": _serialize_range(largest.load),
            "figures": None if largest.answer is None else _serialize_load(target, largest.answer),
        },
        "curve": [_serialize_load(target, one) for one in target.curve],
        "dollars_an_hour": target.price,
        "notes": [note.to_dict() for note in target.notes],
    }


def _serialize_load(target: ServedTarget, answer: LoadAnswer) -> dict[str, Any]:
    figures = {name: _serialize_range(figure) for name, figure in answer.figures.items()}
    main = {
        "tpot_ms": figures["tpot_mean_ms"],
        "ttft_ms": figures["ttft_mean_ms"],
        "tokens_per_s": figures["output_tokens_per_s"],
    }
    return {
        "concurrency": answer.load.concurrency or None,
        "rate": answer.load.rate or None,
        **main,
        PER_GPU: _count_per_gpu(target, answer),
        **figures,
        "preemptions": answer.preemptions,
        "overloaded": answer.is_overloaded,
    }


def _serialize_range(figure: Range) -> dict[str, float]:
    return {"likely": figure.likely, "low": figure.low, "high": figure.high}
