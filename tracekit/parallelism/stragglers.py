"""Predict how the slowest rank's time changes with the number of ranks, from how ranks and steps of the trace differ.

Ranks that synchronise are as fast as the slowest one. The expected maximum of n draws from a normal distribution lies
``compute_expected_maximum(n)`` standard deviations above its mean. So a job of more ranks waits longer for its slowest.
"""

from dataclasses import dataclass, replace
from math import exp, hypot, inf, log, log2, sqrt
from statistics import NormalDist

import polars as pl

from tracekit.messages import Message
from tracekit.messages import layouts as told
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.process_groups import is_training
from tracekit.program import Program

SLOWEST_RANK_QUANTILE = 0.95
"""Quantile of the slowest rank at the upper end of the 90 % interval."""

SPREAD_BOUND_PROBABILITY = 0.1
"""Probability that the true spread exceeds the bound that the upper end uses."""

MIN_DEGREES_OF_FREEDOM = 2
"""Degrees of freedom below which a spread is no estimate."""

USUAL_NODE_RANKS, IN_NODE_DOUBLING_WEIGHT = 8, 0.5
"""Ranks of a usual node, and the weight of a doubling inside one relative to one beyond it.

Published DDP jobs whose GPUs weren't kept waiting for data lost 2.5 to 5 %, most of them 3 %, from one GPU to eight, of
which 0.7 % are their gradient exchange (NVIDIA/DeepLearningExamples, ResNet-50 and EfficientNet).
"""

LIKELY_DOUBLING_LOSS, MAX_DOUBLING_LOSS = 0.015, 0.044
"""Likely and largest loss per doubling of ranks beyond collectives, where only one rank was read.

The median of published throughputs of sharded jobs on 16 to 128 A100s, and the 90th percentile of these and of the same
on up to 512 H100s (mosaicml/llm-foundry, scripts/train/benchmarking; ``tests.validation layouts/data_parallel``).
"""

RELAYOUT_ERROR = 0.03
"""Relative error of a step in another layout even where its kernels are those of the trace.

Of five ranks of recorded DDP jobs whose all-reduces were removed and inserted again, four were off by 0 to 1 % and one
by 3 % (tests/validation/notes/layouts.md).
"""

HOST_SPEED_FACTOR = 1.15
"""Factor by which another host may be slower or faster.

Five jobs recorded on an H100 and on an MI300X machine differ by 6 to 10 % in host time.
"""

HOST_SPEED_PCT = 100 * (HOST_SPEED_FACTOR - 1)
"""The same in percent, as notes state it."""

_STANDARD_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class RankSpread:
    """The variation among ranks and steps of a measured job, as standard deviations relative to the mean step.

    Variation that all ranks of a step have in common is removed where several ranks were read.

    Attributes:
        compute_std: Of the time in which a rank's GPU computes.
        own_std: Of a rank's step without waiting for other ranks; it includes the host, which waiting affects too.
        degrees_of_freedom: Of both.
        ranks_read: Number of ranks that were read.
    """

    compute_std: float
    own_std: float
    degrees_of_freedom: int
    ranks_read: int


@dataclass(frozen=True, slots=True)
class StragglerEffect:
    """The effect of waiting for the slowest rank of another number of ranks.

    Attributes:
        likely_factor: Factor on the step.
        max_factor: Factor at the upper end of the interval.
        note: Why; None if there is nothing to note.
        min_factor: Factor at the lower end, for fewer ranks.
        relayout_error: Further relative error of a step in another layout.
    """

    likely_factor: float = 1.0
    max_factor: float = 1.0
    note: Message | None = None
    min_factor: float = 1.0
    relayout_error: float = 0.0

    def widen_interval(self, step_us: float, low_us: float, high_us: float) -> tuple[float, float]:
        """Widen an interval by this effect, as an error independent of the others; return its low and high end.

        Args:
            step_us: The step without it.
            low_us: The low end without it.
            high_us: The high end without it.
        """
        if (self.min_factor, self.max_factor, self.relayout_error) == (1, 1, 0):
            return low_us, high_us
        else_off = log(1 + self.relayout_error)
        below = hypot(log(max(step_us / low_us, 1.0)) if low_us else inf, log(self.min_factor), else_off)
        above = hypot(log(max(high_us / step_us, 1.0)), log(self.max_factor / self.likely_factor), else_off)
        return step_us * exp(-below), step_us * self.likely_factor * exp(above)


def measure_rank_spread(steady: pl.DataFrame) -> RankSpread:
    """Measure the spread of a run's ranks and steps.

    Args:
        steady: The measured steps, as :meth:`tracekit.program.Program.tabulate_chosen_steps` returns them.
    """
    ranks, steps = steady["rank"].n_unique(), steady["step"].n_unique()
    freedom = (ranks - 1) * steps if ranks > 1 else steps - 1
    times = {"compute": pl.col("busy_ns") - pl.col("exposed_ns"), "own": pl.col("time_ns") - pl.col("waiting_ns")}
    apart = {name: time - (time.mean().over("step") if ranks > 1 else time.mean()) for name, time in times.items()}
    squares = steady.select(**{name: (time**2).sum() for name, time in apart.items()}, mean=pl.col("time_ns").mean())
    compute, own, mean_ns = squares.row(0)
    if freedom < MIN_DEGREES_OF_FREEDOM or not mean_ns:
        return RankSpread(0.0, 0.0, freedom, ranks)
    return RankSpread(sqrt(compute / freedom) / mean_ns, sqrt(own / freedom) / mean_ns, freedom, ranks)


def predict_stragglers(program: Program, spread: RankSpread, old: Layout, new: Layout) -> StragglerEffect:
    """Predict how long a job in another layout waits for its slowest rank, and its further error.

    The spread of computing changes the expectation. The spread of whole steps changes only the upper end, as it is
    partly the host's reaction to waiting. Where one rank was read, the losses of published jobs count if they are
    larger. With fewer ranks the slowest may be faster, which changes only the lower end: it is unknown which ranks
    would remain.

    Args:
        program: The program.
        spread: Its spread.
        old: The trace's layout.
        new: Another one.
    """
    return replace(
        _predict_waiting(spread, old, new) if is_training(program) else StragglerEffect(),
        relayout_error=RELAYOUT_ERROR if old != new else 0.0,
    )


def _predict_waiting(spread: RankSpread, old: Layout, new: Layout) -> StragglerEffect:
    """Predict how long training in another layout waits for its slowest rank."""
    before, after = old.world_size, new.world_size
    if after == before:
        return StragglerEffect()
    if after < before:
        return _predict_fewer_ranks(spread, old, new)
    measured = _predict_from_spread(spread, before, after)
    if spread.ranks_read > 1:
        return measured
    # Tensor-parallel ranks lost no more by waiting than their all-reduces explain (tests/validation).
    fewer, more = old.data_ranks, new.data_ranks
    doublings = _count_doublings(fewer, more)
    likely = (1 + LIKELY_DOUBLING_LOSS) ** doublings
    if measured.likely_factor >= likely:
        return measured
    most = max((1 + MAX_DOUBLING_LOSS) ** doublings, measured.max_factor)
    note = told.STRAGGLERS_AS_PUBLISHED(
        after=more,
        before=fewer,
        slower_pct=100 * (likely - 1),
        max_slower_pct=100 * (most - 1),
        doubling_pct=100 * LIKELY_DOUBLING_LOSS,
        node_ranks=USUAL_NODE_RANKS,
    )
    return StragglerEffect(likely, most, note)


def _count_doublings(fewer: int, more: int) -> float:
    """Count the doublings of replicas; one inside a node counts as a fraction of one beyond it."""
    inside = log2(min(more, USUAL_NODE_RANKS) / min(fewer, USUAL_NODE_RANKS))
    return log2(max(more, USUAL_NODE_RANKS) / max(fewer, USUAL_NODE_RANKS)) + IN_NODE_DOUBLING_WEIGHT * inside


def _predict_fewer_ranks(spread: RankSpread, old: Layout, new: Layout) -> StragglerEffect:
    """Predict by how much the slowest of fewer ranks may be faster."""
    before, after = old.world_size, new.world_size
    if spread.ranks_read == 1:
        # A single rank waits for nobody, and the waiting of the trace's rank is removed from its step.
        most_lost = (
            (1 + MAX_DOUBLING_LOSS) ** _count_doublings(new.data_ranks, old.data_ranks)
            if after > 1 and new.data_ranks < old.data_ranks
            else 1.0
        )
        return StragglerEffect(min_factor=1 / most_lost)
    if spread.degrees_of_freedom < MIN_DEGREES_OF_FREEDOM:
        return StragglerEffect(note=told.SPREAD_UNKNOWN(more=before, fewer=after))
    least = 1 / (1 + _bound_spread(spread) * (compute_expected_maximum(before) - compute_expected_maximum(after)))
    note = told.FEWER_STRAGGLERS(
        after=after, before=before, earlier_pct=100 * (1 - least), spread=_describe_spread(spread)
    )
    return StragglerEffect(min_factor=least, note=note)


def _predict_from_spread(spread: RankSpread, before: int, after: int) -> StragglerEffect:
    """Predict the effect from the ranks and steps that were read."""
    if spread.degrees_of_freedom < MIN_DEGREES_OF_FREEDOM:
        return StragglerEffect(note=told.SPREAD_UNKNOWN(more=after, fewer=before))
    likely = 1 + spread.compute_std * (compute_expected_maximum(after) - compute_expected_maximum(before))
    most = max(
        1
        + _bound_spread(spread)
        * (_STANDARD_NORMAL.inv_cdf(SLOWEST_RANK_QUANTILE ** (1 / after)) - compute_expected_maximum(before)),
        likely,
    )
    note = told.STRAGGLERS_AS_MEASURED(
        after=after,
        before=before,
        slower_pct=100 * (likely - 1),
        max_slower_pct=100 * (most - 1),
        spread=_describe_spread(spread),
    )
    return StragglerEffect(likely, most, note)


def _bound_spread(spread: RankSpread) -> float:
    """Bound the larger standard deviation from above."""
    return max(spread.compute_std, spread.own_std) * sqrt(
        spread.degrees_of_freedom / compute_chi_squared_quantile(spread.degrees_of_freedom)
    )


def _describe_spread(spread: RankSpread) -> Message:
    compute_pct, own_pct = 100 * spread.compute_std, 100 * spread.own_std
    if spread.ranks_read > 1:
        return told.SPREAD_OF_RANKS(ranks=spread.ranks_read, compute_pct=compute_pct, own_pct=own_pct)
    return told.SPREAD_OF_STEPS(compute_pct=compute_pct, own_pct=own_pct)


def compute_expected_maximum(draws: int) -> float:
    """Compute the expected maximum of some draws from the standard normal distribution.

    Source: Blom, Statistical Estimates and Transformed Beta-Variables, 1958; within 0.03.
    """
    return _STANDARD_NORMAL.inv_cdf((draws - 0.375) / (draws + 0.25))


def compute_chi_squared_quantile(degrees_of_freedom: int) -> float:
    """Compute the ``SPREAD_BOUND_PROBABILITY`` quantile of a chi-squared variable (Wilson and Hilferty, 1931).

    Args:
        degrees_of_freedom: Its degrees of freedom.
    """
    part = 2 / (9 * degrees_of_freedom)
    return float(degrees_of_freedom * (1 - part + _STANDARD_NORMAL.inv_cdf(SPREAD_BOUND_PROBABILITY) * sqrt(part)) ** 3)
