"""Infer the steps of a trace in which neither the profiler nor a serving engine nor an optimizer marks any."""

from collections.abc import Callable

import polars as pl

from tracekit.messages import traces as messages
from tracekit.rules import Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload import graph_steps, range_steps, setup_ranges, worker_steps

RULES: tuple[Rule, ...] = (worker_steps.RULE, range_steps.RULE, graph_steps.RULE, setup_ranges.RULE)


def infer_steps(trace: RankTrace, without: RuleNames) -> pl.DataFrame:
    """Infer steps from calls of a serving engine's worker, else named ranges that repeat, else rounds of graphs.

    Returns:
        ``start_ns``, ``end_ns``, ``pid``, ``tid``, ``found_by`` and ``found_name``; no row if nothing tells any.
    """
    sources: list[tuple[Rule, str, Callable[[], pl.DataFrame]]] = [
        (worker_steps.RULE, messages.STEPS_FROM_WORKER.code, lambda: worker_steps.find_worker_steps(trace)),
        (range_steps.RULE, messages.STEPS_FROM_RANGES.code, lambda: range_steps.find_range_steps(trace, without)),
        (graph_steps.RULE, messages.STEPS_FROM_GRAPHS.code, lambda: graph_steps.find_graph_steps(trace)),
    ]
    found = range_steps.NO_STEPS.with_columns(found_by=pl.lit(None, pl.String))
    for rule, code, find in sources:
        if found.is_empty() and rule.is_on(without):
            found = find().with_columns(found_by=pl.lit(code))
    return found
