"""Follow the launch queues and the copies over a step: means over equal parts of its time.

Example: an activity that is queued from 1 to 3 us makes the mean length of its queue between 2 and 4 us a half.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints, select_table
from tracekit.graph.nodes import NONE
from tracekit.program import Program


def compute_means(begin_ns: Ints, end_ns: Ints, rates: Floats, edges_ns: Floats) -> Floats:
    """Compute the mean summed rate of intervals in each part of the time.

    Args:
        begin_ns: Start of each interval.
        end_ns: Its end.
        rates: Its rate while it lasts.
        edges_ns: Where the parts begin and end, in order.
    """
    total = _integrate(begin_ns, rates, edges_ns) - _integrate(end_ns, rates, edges_ns)
    widths = np.diff(edges_ns)
    return np.divide(np.diff(total), widths, out=np.zeros_like(widths), where=widths > 0)


def _integrate(since_ns: Ints, rates: Floats, until_ns: Floats) -> Floats:
    """Sum up the rates that last from ``since_ns`` on, over the time until each of ``until_ns``."""
    offset = float(until_ns[0])  # keeps products of times and rates small
    order = np.argsort(since_ns, kind="stable")
    since, rate = since_ns[order] - offset, rates[order]
    begun = np.searchsorted(since, until_ns - offset, side="right")
    summed, weighted = (np.concatenate([[0.0], np.cumsum(values)]) for values in (rate, rate * since))
    return np.asarray(summed[begun] * (until_ns - offset) - weighted[begun])


def list_queued(program: Program) -> pl.DataFrame:
    """List the activities that waited in a launch queue.

    The columns are ``rank``, ``device``, ``stream``, ``launched_ns``, ``begun_ns``. Activities without a launch in the
    trace are left out.
    """
    nodes = program.graph.nodes
    waited_ns = nodes.start_ns[nodes.n_host :] - nodes.launch_start_ns
    begun_ns = program.kernels["ts_ns"].to_numpy()
    times = pl.DataFrame({"launched_ns": begun_ns - waited_ns, "begun_ns": begun_ns})
    table = program.kernels[["rank", "device", "stream"]].hstack(times)
    return select_table(table, (nodes.launcher != NONE) & (waited_ns > 0))
