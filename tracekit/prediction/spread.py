"""How much later the slowest rank of a larger job may come, and how much earlier that of a smaller one.

It is told from how ranks and steps differ in the trace.

Ranks that synchronise go as fast as the slowest. The expected largest of n draws from a normal distribution lies
``expected_largest(n)`` standard deviations above its mean, so a job of more ranks waits longer for its slowest one.
"""

from dataclasses import dataclass, replace
from math import exp, hypot, inf, log, log2, sqrt
from statistics import NormalDist

import polars as pl

from tracekit.prediction.layout import Layout, trains
from tracekit.replay.engine import measured
from tracekit.replay.run import Run

SURE = 0.95
"""Quantile of the slowest rank at the upper end of the 90 % interval."""

DOUBT = 0.1
"""Chance that the spread is larger than the upper end takes it to be."""

LEAST_FREEDOM = 2
"""Degrees of freedom below which a spread is no estimate."""

NODE, INSIDE = 8, 0.5
"""Ranks of a usual node, and how much a doubling inside one costs over one beyond it: published DDP jobs whose GPUs
weren't kept waiting for data lost 2.5 to 5 %, most of them 3 %, from one GPU to eight, of which 0.7 % are their
exchange (NVIDIA/DeepLearningExamples, ResNet-50 and EfficientNet)."""

LOST, MOST_LOST = 0.015, 0.044
"""What each further doubling of ranks costs a job beyond its collectives, where one rank alone tells nothing of how the
others differ: the median of published throughputs of sharded jobs on 16 to 128 A100s, and the 90th percentile of these
and of the same on up to 512 H100s (mosaicml/llm-foundry, scripts/train/benchmarking; scripts/evaluate_scaling.py)."""

MISSED = 0.03
"""What a step in another layout is off by even where its kernels are those of the trace: of five ranks of recorded DDP
jobs with their exchange taken out and put back, four were off by 0 to 1 % and one by 3 %
(docs/accuracy-clusters.md)."""

HOST_SPREAD = 1.15
"""How much slower or faster another host may be: five jobs recorded on an H100 and on an MI300X machine differ by 6 to
10 % in the time their CPUs take."""

OTHER_HOST = f"the interval allows for a CPU {100 * (HOST_SPREAD - 1):.0f} % slower or faster"
"""The same as a clause of notes."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Spread:
    """How much ranks and steps of a measured job differ, as standard deviations over the mean step.

    What all ranks of a step have in common is taken out, where several were read.

    Attributes:
        compute: Of the time in which a rank's GPU computes.
        own: Of a rank's step without waiting for other ranks; what is left holds the host, and what waiting did to it.
        freedom: Degrees of freedom of both.
        read: Ranks that it was told from.
    """

    compute: float
    own: float
    freedom: int
    read: int


@dataclass(frozen=True, slots=True)
class Straggling:
    """What waiting for the slowest rank of another number of them changes in a step.

    Attributes:
        likely: Factor on the step.
        most: The same at the upper end of the interval.
        note: Why, one clause; None if nothing is to be said.
        least: Factor at the lower end, of fewer ranks.
        missed: What else a step in another layout is off by, as a part of it.
    """

    likely: float = 1.0
    most: float = 1.0
    note: str | None = None
    least: float = 1.0
    missed: float = 0.0

    def ends(self, step_us: float, low_us: float, high_us: float) -> tuple[float, float]:
        """The ends of an interval that holds this too, as errors independent of the others.

        Args:
            step_us: The step without it.
            low_us: The lower end without it.
            high_us: The upper end without it.
        """
        if (self.least, self.most, self.missed) == (1, 1, 0):
            return low_us, high_us
        else_off = log(1 + self.missed)
        below = hypot(log(max(step_us / low_us, 1.0)) if low_us else inf, log(self.least), else_off)
        above = hypot(log(max(high_us / step_us, 1.0)), log(self.most / self.likely), else_off)
        return step_us * exp(-below), step_us * self.likely * exp(above)


def measure_spread(run: Run) -> Spread:
    """The spread of a measured run.

    Args:
        run: The measured run.
    """
    steady = run.each_step(measured(run.graph)).filter("steady")
    ranks, steps = steady["rank"].n_unique(), steady["step"].n_unique()
    freedom = (ranks - 1) * steps if ranks > 1 else steps - 1
    times = {"compute": pl.col("busy_ns") - pl.col("exposed_ns"), "own": pl.col("time_ns") - pl.col("waiting_ns")}
    apart = {name: time - (time.mean().over("step") if ranks > 1 else time.mean()) for name, time in times.items()}
    squares = steady.select(**{name: (time**2).sum() for name, time in apart.items()}, mean=pl.col("time_ns").mean())
    compute, own, mean_ns = squares.row(0)
    if freedom < LEAST_FREEDOM or not mean_ns:
        return Spread(0.0, 0.0, freedom, ranks)
    return Spread(sqrt(compute / freedom) / mean_ns, sqrt(own / freedom) / mean_ns, freedom, ranks)


def straggling(run: Run, spread: Spread, old: Layout, new: Layout) -> Straggling:
    """What a job in another layout than the trace's waits for its slowest rank, and what else it may be off by.

    The spread of computing moves the expectation; the spread of whole steps only the upper end, as it is partly the
    host's answer to waiting. Where one rank was read, what published jobs lost counts if it is more. Of fewer ranks the
    slowest may come earlier, which moves the lower end only: which ranks would be left isn't known.

    Args:
        run: The measured run.
        spread: Its spread.
        old: The trace's layout.
        new: Another one.
    """
    return replace(_waiting(spread, old, new) if trains(run) else Straggling(), missed=MISSED if old != new else 0.0)


def _waiting(spread: Spread, old: Layout, new: Layout) -> Straggling:
    """What training in another layout waits for its slowest rank."""
    before, after = old.world_size, new.world_size
    if after == before:
        return Straggling()
    if after < before:
        return _of_fewer(spread, old, new)
    told = _of_its_own(spread, before, after)
    if spread.read > 1:
        return told
    # Ranks that share a layer lost no more by waiting than their all-reduces explain (scripts/evaluate_megatron.py).
    fewer, more = old.dp, new.dp
    doublings = _doublings(fewer, more)
    if told.likely >= (1 + LOST) ** doublings:
        return told
    likely, most = (1 + LOST) ** doublings, max((1 + MOST_LOST) ** doublings, told.most)
    return Straggling(
        likely,
        most,
        f"{more} data-parallel ranks are assumed to be {100 * (likely - 1):.1f} % slower than {fewer}, by their "
        f"slowest one, at most {100 * (most - 1):.0f} %: one rank doesn't tell how the others differ, and published "
        f"jobs lost {100 * LOST:g} % with each doubling beyond {NODE}, half of that up to there. Give the traces of "
        "several ranks to measure it",
    )


def _doublings(fewer: int, more: int) -> float:
    """Of the replicas, each inside a node as a part of one beyond it."""
    inside = log2(min(more, NODE) / min(fewer, NODE))
    return log2(max(more, NODE) / max(fewer, NODE)) + INSIDE * inside


def _of_fewer(spread: Spread, old: Layout, new: Layout) -> Straggling:
    """How much earlier the slowest of fewer ranks may come."""
    before, after = old.world_size, new.world_size
    if spread.read == 1:
        # A lone rank waits for nobody, and what the trace's rank waited is taken out of its step.
        most_lost = (1 + MOST_LOST) ** _doublings(new.dp, old.dp) if after > 1 and new.dp < old.dp else 1.0
        return Straggling(least=1 / most_lost)
    if spread.freedom < LEAST_FREEDOM:
        return Straggling(note=_untold(before, after))
    least = 1 / (1 + _wide(spread) * (expected_largest(before) - expected_largest(after)))
    slowest = f"the slowest of {after} ranks" if after > 1 else "a lone rank"
    return Straggling(
        least=least,
        note=f"{slowest} may come up to {100 * (1 - least):.0f} % earlier than the slowest of {before}, "
        f"which the interval's lower end allows for: {_varying(spread)}",
    )


def _of_its_own(spread: Spread, before: int, after: int) -> Straggling:
    """What the ranks and steps that were read tell."""
    if spread.freedom < LEAST_FREEDOM:
        return Straggling(note=_untold(after, before))
    likely = 1 + spread.compute * (expected_largest(after) - expected_largest(before))
    most = max(1 + _wide(spread) * (_NORMAL.inv_cdf(SURE ** (1 / after)) - expected_largest(before)), likely)
    return Straggling(
        likely,
        most,
        f"the slowest of {after} ranks is assumed to be {100 * (likely - 1):.1f} % later than that of {before}, at "
        f"most {100 * (most - 1):.0f} %: {_varying(spread)}",
    )


def _wide(spread: Spread) -> float:
    """The larger standard deviation, at its upper bound."""
    return max(spread.compute, spread.own) * sqrt(spread.freedom / least_chi_squared(spread.freedom))


def _varying(spread: Spread) -> str:
    over = f"{spread.read} ranks" if spread.read > 1 else "the steps of the one rank read"
    return (
        f"over {over} computing varies by {100 * spread.compute:.1f} % of a step, all but waiting by "
        f"{100 * spread.own:.1f} %"
    )


def _untold(more: int, fewer: int) -> str:
    return (
        f"that the slowest of {more} ranks is slower than the slowest of {fewer} isn't in the numbers: too few ranks "
        "and steps were read to tell their spread"
    )


def expected_largest(draws: int) -> float:
    """Expected largest of some draws from the standard normal distribution.

    Source: Blom, Statistical Estimates and Transformed Beta-Variables, 1958; within 0.03.
    """
    return _NORMAL.inv_cdf((draws - 0.375) / (draws + 0.25))


def least_chi_squared(freedom: int) -> float:
    """What a chi-squared variable exceeds but for a chance of ``DOUBT`` (Wilson and Hilferty, 1931).

    Args:
        freedom: Its degrees of freedom.
    """
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + _NORMAL.inv_cdf(DOUBT) * sqrt(part)) ** 3)
