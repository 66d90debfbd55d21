"""Compare two runs: two measurements, or a prediction and a later measurement."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from math import exp, isclose
from pathlib import PurePath

import polars as pl

from tracekit import format
from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.messages import predictions as messages
from tracekit.prediction import Prediction, Predictions
from tracekit.prediction.batch import StepBatch
from tracekit.reporting.build import build_prediction_report, build_report
from tracekit.reporting.model import Report
from tracekit.reporting.sections.step import order_parts
from tracekit.run import prepare_run
from tracekit.scoreboard import Forecast, LawTime, Outcome
from tracekit.secret_scan import WORKER_PATTERN
from tracekit.trace import Trace

MIN_SHARED_PCT = 50.0
"""Percent of common kernels from which two runs count as the same program."""

WEIGHT_FAMILIES = ("gemm", "conv")
"""Families whose kernels use weights. The shapes of weights don't depend on batch or precision."""

MIN_WEIGHT_DIMS = 2
"""Minimum number of dimensions of a weight."""

OperandShapes = frozenset[tuple[int, ...]]


def is_same_program(a: pl.DataFrame, b: pl.DataFrame, shared_pct: float, sharded: bool) -> bool:
    """Return whether two runs' kernels belong to the same program, as far as ops, shapes and weights show it.

    The kernel tables are those of :class:`tracekit.reporting.comparison.ComparisonSide`. ``shared_pct`` is the
    percent of both runs' kernel time in kernels with the same op, precision and shapes. ``sharded`` states that one
    run has the shapes of whole layers while the other may split them over ranks; weights are then not compared.
    """
    if shared_pct >= MIN_SHARED_PCT or a.is_empty() or b.is_empty():
        return True
    if sharded or not (_has_shapes(a) and _has_shapes(b)):
        return min(_compute_common_ops_pct(a, b), _compute_common_ops_pct(b, a)) >= MIN_SHARED_PCT
    return compute_shared_weights_pct(a, b) >= MIN_SHARED_PCT


def compute_shared_weights_pct(a: pl.DataFrame, b: pl.DataFrame) -> float:
    """Compute the percent of GEMM and convolution launches that use the same weights in both runs, by shape."""
    of_a, of_b = _list_weight_kernels(a), _list_weight_kernels(b)
    both = _collect_shapes(of_a) & _collect_shapes(of_b)
    in_a, in_b = _count_by_weights(of_a, both), _count_by_weights(of_b, both)
    return 100 * sum(min(in_a[weights], in_b[weights]) for weights in in_a if weights)


def _has_shapes(kernels: pl.DataFrame) -> bool:
    return kernels["shape"].is_not_null().any()


def _compute_common_ops_pct(kernels: pl.DataFrame, others: pl.DataFrame) -> float:
    """Compute the percent of the compute kernels' time whose op the other run has too."""
    computing = kernels.filter(pl.col("family") != "collective")
    common = computing.join(others, on=("family", "op"), how="semi", nulls_equal=True)
    all_us = float(computing["time_us"].sum())
    return 100 * float(common["time_us"].sum()) / all_us if all_us else 0.0


def _list_weight_kernels(kernels: pl.DataFrame) -> list[tuple[OperandShapes, float]]:
    """List the operand shapes of each GEMM or convolution, and its number of launches."""
    rows = kernels.filter(pl.col("family").is_in(WEIGHT_FAMILIES) & pl.col("shape").is_not_null())
    return [(_extract_matrices(json.loads(shape)), count) for shape, count in rows.select("shape", "count").iter_rows()]


def _extract_matrices(dims: Sequence[object]) -> OperandShapes:
    operands = (tuple(sizes) for sizes in dims if isinstance(sizes, list) and len(sizes) >= MIN_WEIGHT_DIMS)
    return frozenset(sizes for sizes in operands if all(isinstance(size, int) for size in sizes))


def _collect_shapes(products: Sequence[tuple[OperandShapes, float]]) -> OperandShapes:
    return frozenset[tuple[int, ...]]().union(*(operands for operands, _ in products))


def _count_by_weights(products: Sequence[tuple[OperandShapes, float]], both: OperandShapes) -> Counter[OperandShapes]:
    """Compute, for each set of operand shapes that both runs have, its fraction of all launches."""
    launches = sum(count for _, count in products)
    parts: Counter[OperandShapes] = Counter()
    for operands, count in products:
        parts[operands & both] += count / launches  # type: ignore[assignment] # of a counter of fractions
    return parts


MATCH_COLUMNS = ("family", "op", "dtype", "shape")
"""Columns by which kernels are matched; their names change with the GPU and the library."""

FILE_FORMAT_KEYS = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds")
"""Metadata that describes the file format; it may differ between runs that are the same."""


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """One of the two runs.

    Attributes:
        label: Its name in the comparison.
        gpu: Canonical name; ``None`` if it isn't known.
        step_time_us: Step time.
        low_us: Lower end of a prediction's 90 % interval; ``None`` for a measurement.
        high_us: Upper end of the interval.
        parts: Time per step by family of kernels, ``waiting`` and ``idle``.
        kernels: ``family``, ``op``, ``dtype``, ``shape``, ``count``, ``time_us`` per step.
        recorded: Metadata of the recording.
        alone: Whether it is one rank of several, measured without the others.
        unlisted: Number of kernels missing from ``kernels``: the shortest ones, in a file of an older version.
        ranks: Ranks of the job; ``None`` if unknown.
        batch: Samples or tokens that the job processes in a step; ``None`` if unknown.
        forecast: What the scoreboard keeps of a prediction; ``None`` for a measurement.
        law_offsets: Logarithms of the factors that earlier outcomes gave a prediction's times, by family of kernels.
    """

    label: str
    gpu: str | None
    step_time_us: float
    low_us: float | None
    high_us: float | None
    parts: Mapping[str, float]
    kernels: pl.DataFrame
    recorded: Mapping[str, str]
    alone: bool = False
    unlisted: int = 0
    ranks: int | None = None
    batch: StepBatch | None = None
    forecast: Forecast | None = None
    law_offsets: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_prediction(self) -> bool:
        """Whether this side is a prediction."""
        return self.low_us is not None


@dataclass(frozen=True, slots=True)
class TimeChange:
    """One line of the comparison; ``None`` for a side that lacks it.

    Attributes:
        what: Family, or the kernel's op, dtype and shape.
        a_us: Time per step in the first run.
        b_us: Time per step in the second run.
        a_count: Launches per step in the first run, for kernels.
        b_count: Launches per step in the second run.
    """

    what: str
    a_us: float | None
    b_us: float | None
    a_count: float | None = None
    b_count: float | None = None

    @property
    def change_us(self) -> float:
        """Time in the second run minus time in the first."""
        return (self.b_us or 0.0) - (self.a_us or 0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        a: The first run.
        b: The second run.
        parts: Time per step by family in both runs, largest change first.
        matched: Kernels that both runs have, largest change first.
        new: Kernels that only the second run has, longest first.
        vanished: Kernels that only the first run has, longest first.
        recorded: Metadata that differs: name, value in the first run, value in the second.
        alike: Whether both runs are of the same program; otherwise their step times can't be compared.
    """

    a: ComparisonSide
    b: ComparisonSide
    parts: tuple[TimeChange, ...]
    matched: tuple[TimeChange, ...]
    new: tuple[TimeChange, ...]
    vanished: tuple[TimeChange, ...]
    recorded: tuple[tuple[str, str, str], ...]
    alike: bool = True

    def __repr__(self) -> str:
        sides = ", ".join(f"{side.label} {format.format_duration(side.step_time_us)}" for side in (self.a, self.b))
        change = "different programs" if self.change_pct is None else f"{self.change_pct:+.1f} %"
        return f"Comparison({sides}: {change})"

    @property
    def change_pct(self) -> float | None:
        """Increase of the step time from the first run to the second, percent; ``None`` for different programs."""
        return 100 * (self.b.step_time_us / self.a.step_time_us - 1) if self.alike else None

    @property
    def shared_pct(self) -> float:
        """Percent of both runs' kernel time in kernels that both have."""
        return _compute_shared_pct(self.matched, self.new, self.vanished)

    @property
    def more_done_pct(self) -> float | None:
        """Increase of throughput from the first run to the second, percent.

        ``None`` if both steps process the same batch, if a batch is unknown, or for different programs.
        """
        a, b = self.a.batch, self.b.batch
        if not self.alike or a is None or b is None or a.unit != b.unit or isclose(a.size, b.size):
            return None
        return 100 * (b.compute_throughput(self.b.step_time_us) / a.compute_throughput(self.a.step_time_us) - 1)

    @property
    def longer_pct(self) -> float | None:
        """Increase of the time for the same work, percent; ``None`` for different programs."""
        more = self.more_done_pct
        return self.change_pct if more is None else 100 * (100 / (100 + more) - 1)

    @property
    def prediction_and_measurement(self) -> tuple[ComparisonSide, ComparisonSide] | None:
        """The prediction and the measurement; ``None`` unless exactly one side is a prediction."""
        if self.a.is_prediction == self.b.is_prediction:
            return None
        return (self.a, self.b) if self.a.is_prediction else (self.b, self.a)

    @property
    def has_other_gpu(self) -> bool:
        """Whether a prediction is compared with a measurement on another GPU."""
        gpus = {side.gpu for side in self.prediction_and_measurement or ()}
        return len(gpus) > 1 and None not in gpus

    @property
    def has_other_ranks(self) -> bool:
        """Whether a prediction is compared with a measurement on another number of ranks."""
        ranks = {side.ranks for side in self.prediction_and_measurement or ()}
        return len(ranks) > 1 and None not in ranks

    @property
    def scored_pair(self) -> tuple[ComparisonSide, ComparisonSide] | None:
        """The prediction and the later measurement of the same step; ``None`` if something else is compared."""
        other = self.has_other_gpu or self.has_other_ranks or self.more_done_pct is not None
        return self.prediction_and_measurement if self.alike and not other else None

    @property
    def error_pct(self) -> float | None:
        """Error of the prediction, percent; ``None`` as for :attr:`scored_pair`."""
        if self.scored_pair is None:
            return None
        predicted, measured = self.scored_pair
        return 100 * (predicted.step_time_us / measured.step_time_us - 1)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured step lies in the prediction's interval; ``None`` as for :attr:`scored_pair`."""
        if self.scored_pair is None:
            return None
        predicted, measured = self.scored_pair
        return (predicted.low_us or 0.0) <= measured.step_time_us <= (predicted.high_us or 0.0)


def make_measured_side(report: Report, label: str) -> ComparisonSide:
    """Make a side of the measured run of a report."""
    return ComparisonSide(
        label=label,
        gpu=report.source.gpu,
        step_time_us=report.source.step_time_us,
        low_us=None,
        high_us=None,
        parts=dict(report.bars[0].parts),
        kernels=build_kernel_table((k.family, k.op, k.dtype, k.shape, k.count, k.time_us) for k in report.kernels),
        recorded=dict(report.provenance.recorded),
        alone=report.source.ranks > report.source.measured == 1,
        ranks=report.source.ranks,
        batch=report.source.batch,
    )


def make_predicted_side(report: Report, place: int, label: str) -> ComparisonSide:
    """Make a side of one prediction of a report; ``place`` is its place among the targets."""
    target = report.targets[place]
    rows = ((k.family, k.op, k.dtype, k.shape, k.count, k.predicted_us[place]) for k in report.kernels)
    return ComparisonSide(
        label=label,
        gpu=target.gpu,
        step_time_us=target.step.step_time_us,
        low_us=target.low_us,
        high_us=target.high_us,
        parts=dict(report.bars[1 + place].parts),
        kernels=build_kernel_table(rows),
        recorded={},
        ranks=target.ranks,
        batch=target.batch,
        forecast=target.forecast,
        law_offsets=target.experience.law_offsets if target.experience else {},
    )


def to_side(run: Trace | Report | Predictions, gpu: str | None = None, steps: str | None = None) -> ComparisonSide:
    """Convert a trace, report or predictions to a side of a comparison.

    Args:
        run: A trace or its report for the measured run, or predictions.
        gpu: The prediction to use; required if there are several.
        steps: The steps of a trace to measure; all by default.

    Raises:
        TracekitError: ``run`` has another type, the steps aren't in the trace, or ``gpu`` names none of several
            predictions.
    """
    if not isinstance(run, Trace | Report | Predictions):
        raise TracekitError(front_ends.NOT_COMPARABLE(value=repr(run)))
    if isinstance(run, Predictions):
        target = _choose_prediction(run, gpu)
        predicted = build_prediction_report(run)
        place = [one.label for one in predicted.targets].index(target.label)
        return make_predicted_side(predicted, place, f"{_get_report_name(predicted)}, predicted on {target.label}")
    report = build_report(prepare_run(run, steps=steps)) if isinstance(run, Trace) else run
    return make_measured_side(report, _get_report_name(report))


def _choose_prediction(predictions: Predictions, gpu: str | None) -> Prediction:
    if gpu is None and len(predictions) != 1:
        raise TracekitError(front_ends.PREDICTIONS_OF_SEVERAL(targets=[*predictions]))
    try:
        return predictions.targets[0] if gpu is None else predictions[gpu]
    except KeyError as error:
        raise TracekitError(front_ends.GPU_NOT_PREDICTED(gpu=gpu, targets=[*predictions])) from error


def _get_report_name(report: Report) -> str:
    file = PurePath(report.provenance.trace).name
    name = re.sub(WORKER_PATTERN, "", file).lstrip("_.").split(".")[0]
    return format.abbreviate_names(name, report.source.measured - 1)


def compare(a: ComparisonSide, b: ComparisonSide) -> Comparison:
    """Compare two sides."""
    if a.label == b.label:
        a, b = replace(a, label=f"{a.label} (A)"), replace(b, label=f"{b.label} (B)")
    joined = a.kernels.join(b.kernels, on=MATCH_COLUMNS, how="full", coalesce=True, nulls_equal=True, suffix="_b")
    changes = [
        _make_change(*row)
        for row in joined.select(*MATCH_COLUMNS, "time_us", "time_us_b", "count", "count_b").iter_rows()
    ]
    families = order_parts((*a.parts, *b.parts))
    b = replace(b, parts={family: b.parts[family] for family in families if family in b.parts})
    said = (key for key in {**a.recorded, **b.recorded} if key not in FILE_FORMAT_KEYS)
    recorded = ((key, a.recorded.get(key, "–"), b.recorded.get(key, "–")) for key in said)
    matched = _sort_by_change(change for change in changes if change.a_us is not None and change.b_us is not None)
    new = _sort_by_change(change for change in changes if change.a_us is None)
    vanished = _sort_by_change(change for change in changes if change.b_us is None)
    return Comparison(
        a=a,
        b=b,
        parts=_sort_by_change(TimeChange(family, a.parts.get(family), b.parts.get(family)) for family in families),
        matched=matched,
        new=new,
        vanished=vanished,
        recorded=tuple(row for row in recorded if row[1] != row[2]) if a.recorded and b.recorded else (),
        alike=is_same_program(
            a.kernels, b.kernels, _compute_shared_pct(matched, new, vanished), _may_be_sharded(a) or _may_be_sharded(b)
        ),
    )


def build_kernel_table(rows: Iterable[tuple[object, ...]]) -> pl.DataFrame:
    """Build a side's kernel table from rows of family, op, dtype, shape, count and time."""
    columns = dict.fromkeys(MATCH_COLUMNS, pl.String) | {"count": pl.Float64, "time_us": pl.Float64}
    table = pl.DataFrame(list(rows), schema=columns, orient="row")
    return table.group_by(MATCH_COLUMNS, maintain_order=True).agg(pl.col("count", "time_us").sum())


def _make_change(
    family: str,
    op: str | None,
    dtype: str | None,
    shape: str | None,
    a_us: float | None,
    b_us: float | None,
    a_count: float | None,
    b_count: float | None,
) -> TimeChange:
    what = " ".join(part for part in (op or family, dtype, format.format_shape(shape)) if part)
    return TimeChange(what, a_us, b_us, a_count, b_count)


def _compute_shared_pct(
    matched: Sequence[TimeChange], new: Sequence[TimeChange], vanished: Sequence[TimeChange]
) -> float:
    shared, all_us = (
        sum((change.a_us or 0.0) + (change.b_us or 0.0) for change in changes)
        for changes in (matched, (*matched, *new, *vanished))
    )
    return 100 * shared / all_us if all_us else 100.0


def _may_be_sharded(side: ComparisonSide) -> bool:
    """Return whether the kernels may have unsharded shapes: a prediction for several ranks uses the trace's shapes."""
    return side.is_prediction and (side.ranks or 1) > 1


def _sort_by_change(changes: Iterable[TimeChange]) -> tuple[TimeChange, ...]:
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_us), change.what)))


def make_outcome(comparison: Comparison) -> Outcome:
    """Make the outcome of a comparison of a prediction with the trace recorded since.

    Raises:
        TracekitError: It compares something else, or the prediction is of an older version.
    """
    if comparison.scored_pair is None:
        raise TracekitError(messages.OUTCOME_NOT_SCORED())
    predicted, measured = comparison.scored_pair
    if measured.gpu is None or measured.alone:
        raise TracekitError(messages.OUTCOME_NOT_SCORED())
    if predicted.forecast is None:
        raise TracekitError(messages.FORECAST_MISSING(prediction=predicted.label))
    return Outcome(
        **asdict(predicted.forecast),
        measured_us=measured.step_time_us,
        date=datetime.now(UTC).date().isoformat(),
        laws=tuple(_sum_laws(predicted, measured)),
    )


def _sum_laws(predicted: ComparisonSide, measured: ComparisonSide) -> Iterator[LawTime]:
    """Sum the times of the kernels that both sides have, as often, by family, without the offsets of a prediction."""
    both = predicted.kernels.join(measured.kernels, on=MATCH_COLUMNS, how="inner", nulls_equal=True, suffix="_b")
    as_often = both.filter((pl.col("count") - pl.col("count_b")).abs() < 0.5)
    sums = as_often.group_by("family").agg(pl.col("time_us", "time_us_b").sum()).sort("family")
    for family, predicted_us, measured_us in sums.iter_rows():
        if predicted_us > 0 and measured_us > 0:
            law_us = predicted_us * exp(-predicted.law_offsets.get(family, 0.0))
            yield LawTime(family=family, predicted_us=law_us, measured_us=measured_us)
