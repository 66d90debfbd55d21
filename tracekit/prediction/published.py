"""How predictions came out for jobs whose throughput others published, by the GPU that they were carried to."""

import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

from predictors import Gpu
from predictors.fitted import SHIPPED, shipped_sha256
from predictors.machine import machine
from predictors.transfer import relation

TABLE = SHIPPED / "jobs.toml"
"""By scripts/evaluate_gpus.py: GPU -> pairs of throughputs, the median error and the worst, percent."""
FEWEST = 20
"""Pairs that tell something of a GPU."""
WORTH_SAYING_PCT = 10.0
"""Median error from which on it is told."""


def note(source: Gpu | None, target: Gpu) -> Iterator[str]:
    """That published jobs ran faster or slower on a GPU than carried to it, as predictions for it may too.

    Args:
        source: Where the trace was recorded; siblings of the target say nothing else of it.
        target: Where to.
    """
    of = _jobs().get(target.slug)
    if of is None or of["pairs"] < FEWEST or abs(of["median"]) < WORTH_SAYING_PCT:
        return
    if source is None or relation(machine(source), machine(target)) == "sibling":
        return
    way = "fast" if of["median"] > 0 else "slow"
    yield (
        f"{of['pairs']} published throughputs predicted for {target.slug} from other kinds of GPU came out "
        f"{abs(of['median']):.0f} % too {way} in the median, the worst {of['worst']:+.0f} %: so may this, perhaps "
        "by less, as a trace has the time outside of kernels that those lacked (docs/accuracy.md)"
    )


@cache
def _jobs() -> dict[str, Any]:
    """Nothing where the table is of other weights."""
    found: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return dict(found["jobs"]) if found["weights"] == shipped_sha256() else {}
