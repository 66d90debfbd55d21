"""FLOPs and bytes of op calls against TraceLens, and who is right where they differ."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import tracekit as tk
from predictors.kernels import add_law, complete_columns
from predictors.work import add_work
from tests.validation.studies.oracles.peers import list_traces, open_tracelens, quiet, require
from tests.validation.study import REAL_TRACES, format_table
from tracekit.run import prepare_run

INPUTS = (REAL_TRACES,)
EQUAL, NEAR = 1e-6, 0.05
FIGURES = ("FLOPs", "bytes")
HEADINGS = ("family", "calls", *(f"{figure} {how}" for figure in FIGURES for how in ("equal", "within 5 %", "further")))


@dataclass(frozen=True)
class Judgement:
    """Who is right about a kind of call, found by hand.

    Attributes:
        op: The op.
        figure: ``FLOPs`` or ``bytes``.
        right: ``tracekit``, ``TraceLens``, ``neither`` or ``convention``.
        why: The reason.
    """

    op: str
    figure: str
    right: str
    why: str


JUDGED = (
    Judgement("aten::copy_", "FLOPs", "convention", "TraceLens counts one an element; a copy computes nothing"),
    Judgement(
        "aten::copy_",
        "bytes",
        "tracekit",
        "from or to the host: one side is the GPU's; of a conversion, the sizes of both types",
    ),
    Judgement("aten::bmm", "FLOPs", "tracekit", "2 x 16 x 16 x 27 x 27; TraceLens takes one product of the 16"),
    Judgement("aten::bmm", "bytes", "tracekit", "likewise: all 16 products are read and written"),
)
"""The first that fits counts."""
PRODUCTS = ("gemm", "conv", "attention")
"""Families of kernels that are compared alone: layout copies beside them are no part of TraceLens's figure."""


@dataclass(frozen=True)
class Call:
    """An op call that both know.

    Attributes:
        trace: Name of the trace.
        op: The op.
        shapes: Shapes of its inputs.
        family: TraceLens's.
        theirs: TraceLens's FLOPs and bytes.
        ours: tracekit's, of all its kernels; ``None`` if that of one isn't known.
    """

    trace: str
    op: str
    shapes: str
    family: str
    theirs: tuple[float, float]
    ours: tuple[float, float] | None


def run() -> str:
    """Return both tables.

    Raises:
        MissingInputError: TraceLens isn't installed.
    """
    require("TraceLens")
    calls = [call for path in list_traces() for call in list_calls(path)]
    known = [call for call in calls if call.ours is not None]
    text = (
        f"# Work of op calls against TraceLens\n\n{len(calls):,} calls of {len({one.trace for one in calls})} traces, "
    )
    text += f"{len(calls) - len(known):,} of them of unknown work here. Exact to {EQUAL:g} counts as equal.\n\n"
    text += format_table(HEADINGS, list_families(known))
    text += "\nWho is right where they differ by more than 5 %, each kind by hand; the widest case is shown.\n\n"
    headings = ("op", "figure", "calls", "tracekit", "TraceLens", "shapes", "trace", "right", "why")
    return text + format_table(headings, list_kinds(known))


def list_calls(path: Path) -> Iterator[Call]:
    """Yield the calls of a trace whose work TraceLens knows; those without kernels are left out."""
    analyzer = open_tracelens(path)
    kernels = prepare_run(tk.load(path, cache=False)).kernels
    work = add_work(add_law(complete_columns(kernels))).select(
        kernels["correlation"], "work_flops", "work_bytes", is_product=pl.col("family").cast(pl.String).is_in(PRODUCTS)
    )
    counted = work.filter(pl.col("is_product") | ~pl.col("is_product").any().over("correlation"))
    sums = counted.group_by("correlation").agg(
        pl.col("work_flops", "work_bytes").sum(), pl.col("work_bytes").is_null().any().alias("is_unknown"),
        pl.col("is_product").any(),
    )  # fmt: skip
    known = {row["correlation"]: row for row in sums.iter_rows(named=True)}
    for event in analyzer.tree.events:
        if event.get("cat") != "cpu_op" or event["name"] not in analyzer.op_to_perf_model_class_map:
            continue
        with quiet():
            told = count_theirs(analyzer, event)
        if told is None:
            continue
        correlations, theirs, family = told
        rows = [known[one] for one in correlations if one in known]
        is_known = len(rows) == len(correlations) and not any(row["is_unknown"] for row in rows)
        rows = [row for row in rows if row["is_product"]] or rows
        flops, size = (float(sum(row[name] or 0 for row in rows)) for name in ("work_flops", "work_bytes"))
        shapes = str(event["args"].get("Input Dims"))
        yield Call(
            path.name.partition(".")[0], event["name"], shapes, family, theirs, (flops, size) if is_known else None
        )


def count_theirs(analyzer: Any, event: dict[str, Any]) -> tuple[set[int], tuple[float, float], str] | None:
    """Return correlations of a call's kernels, and TraceLens's FLOPs and bytes and family; none if it can't tell."""
    _, ids = analyzer.loop_and_aggregate_kernels([event])
    if not ids:
        return None
    try:
        metrics = analyzer.compute_perf_metrics(event)
    except Exception:  # shapes that aren't recorded, and much else
        return None
    kernels = [analyzer.tree.events_by_uid[one] for one in ids]
    family = str(analyzer.op_categorizer({"name": event["name"], "kernel_details": [kernels[0]]}))
    correlations = {int(one["args"].get("correlation", -1)) for one in kernels}
    return correlations, (float(metrics["GFLOPS"]) * 1e9, float(metrics["Data Moved (MB)"]) * (1 << 20)), family


def compare(theirs: float, ours: float) -> int:
    """Return 0 for equal figures, 1 for near ones, 2 for others."""
    most = max(abs(theirs), abs(ours))
    apart = 0.0 if most == 0 else abs(theirs - ours) / most
    return 0 if apart <= EQUAL else 1 if apart <= NEAR else 2


def list_families(calls: list[Call]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each of TraceLens's families."""
    families: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for call in calls:
        for figure, (theirs, ours) in enumerate(zip(call.theirs, call.ours or (), strict=True)):
            if theirs == theirs:  # bytes may be none
                families[call.family][figure, compare(theirs, ours)] += 1
    for family, counts in sorted(families.items()):
        cells = [counts[figure, how] for figure in range(len(FIGURES)) for how in range(3)]
        yield (family, f"{sum(cells[:3]):,}", *(f"{cell:,}" for cell in cells))


def list_kinds(calls: list[Call]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each op and figure that differs, with who is right."""
    kinds: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        for figure, (theirs, ours) in enumerate(zip(call.theirs, call.ours or (), strict=True)):
            if theirs == theirs and compare(theirs, ours) == 2:
                kinds[call.op, figure].append(call)
    for (op, figure), members in sorted(kinds.items()):
        widest = max(members, key=lambda call: _get_ratio(call, figure))
        judged = next((one for one in JUDGED if op == one.op and one.figure == FIGURES[figure]), None)
        shown = (f"{(widest.ours or ())[figure]:,.0f}", f"{widest.theirs[figure]:,.0f}", widest.shapes, widest.trace)
        yield (
            op,
            FIGURES[figure],
            f"{len(members):,}",
            *shown,
            *((judged.right, judged.why) if judged else ("not judged", "")),
        )


def _get_ratio(call: Call, figure: int) -> float:
    low, high = sorted((call.theirs[figure], (call.ours or (0.0, 0.0))[figure]))
    return high / max(low, 1.0)
