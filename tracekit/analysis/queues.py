"""Measure the launch queue of each stream: activities that were launched and haven't begun."""

import polars as pl

from tracekit.analysis.gaps import STREAM_KEYS
from tracekit.arrays import IN_ORDER
from tracekit.graph.nodes import NONE
from tracekit.program import Program


def measure_queues(program: Program) -> pl.DataFrame:
    """Measure the queues of the activities that the chosen steps launched.

    Returns:
        A row per stream: ``rank``, ``device``, ``stream``; ``waited_us``, how long its activities were queued, summed:
        over a time, that is the mean length of the queue; ``most_queued``, its greatest length. Activities whose launch
        isn't in the trace count in neither.
    """
    nodes, keys = program.graph.nodes, list(STREAM_KEYS)
    launched = pl.Series(nodes.launch_start_ns)
    begun = pl.Series(nodes.start_ns[nodes.n_host :])
    known = program.is_in_chosen_steps & pl.Series(nodes.launcher != NONE) & (begun > launched)
    columns = [program.kernels[key] for key in keys]
    queued = pl.DataFrame([*columns, launched.alias("launched"), begun.alias("begun")]).lazy().filter(known)
    # Of what happens at one time, ends come first.
    changes = pl.concat(
        queued.select(*keys, at_ns=at, change=pl.lit(change)) for at, change in (("begun", -1), ("launched", 1))
    ).sort("at_ns", "change")
    most = changes.with_columns(length=pl.col("change").cum_sum().over(keys)).group_by(keys)
    waited = queued.group_by(keys).agg(waited_us=(pl.col("begun") - pl.col("launched")).sum() / 1e3)
    return waited.join(most.agg(most_queued=pl.col("length").max()), on=keys, nulls_equal=True).collect(engine=IN_ORDER)
