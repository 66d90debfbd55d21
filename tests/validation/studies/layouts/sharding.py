"""Sharding plans against the best of all, and how long the search takes.

No public measurements of plans on one cluster were found, so that only the search is tested: on drawn cases small
enough to try every assignment, by the same costs. Which of several plans is really the fastest, a cluster would prove.
"""

from collections.abc import Iterator
from time import process_time

import numpy as np

from tests.validation.exact_sharding import draw_small_case, measure_excess
from tests.validation.study import format_table
from tracekit.comm import load_cluster
from tracekit.sharding import PlannedTable, ShardingSetting, plan_sharding

INPUTS = ()
CASES = 200
LARGE = (("8xh100-sxm", 100), ("16x8xh100-sxm@ndr400", 1000))
"""Clusters, and tables of different sizes."""


def run() -> str:
    """Return how far the plans found are from the best, and the time of two large searches."""
    ranks = [draw_small_case(seed)[1].ranks for seed in range(CASES)]
    excess = np.array([measure_excess(seed) for seed in range(CASES)])
    of_ranks = [(number, excess[np.array(ranks) == number]) for number in sorted(set(ranks))]
    rows = [(f"{number} ranks", *_describe(found)) for number, found in of_ranks] + [("all", *_describe(excess))]
    headings = ("cases", "number", "the best", "within 1 %", "within 5 %", "farthest")
    large = format_table(("cluster", "tables", "CPU time"), list(_time_searches()))
    return "\n".join(("# Sharding plans\n", format_table(headings, rows), "", "## Large ones\n", large))


def _describe(excess: np.ndarray) -> tuple[str, ...]:
    within = (f"{100 * (excess <= bound).mean():.0f} %" for bound in (1e-6, 0.01, 0.05))
    return str(excess.size), *within, f"+{100 * excess.max():.1f} %"


def _time_searches() -> Iterator[tuple[str, str, str]]:
    for cluster, count in LARGE:
        draw = np.random.default_rng(0)
        tables = [
            PlannedTable(f"table_{number}", int(10 ** draw.uniform(2, 8)), int(draw.choice([32, 64, 128, 256])), 20.0)
            for number in range(count)
        ]
        start = process_time()
        plan_sharding(tables, ShardingSetting(load_cluster(cluster), 512))
        yield cluster, str(count), f"about {round(process_time() - start)} s"
