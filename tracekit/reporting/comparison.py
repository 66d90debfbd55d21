"""Two runs side by side: two measured ones, or a prediction and what was measured later."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import PurePath

import polars as pl

from tracekit import units
from tracekit.errors import TracekitError
from tracekit.prediction import Prediction, Predictions
from tracekit.prediction.batch import Batch
from tracekit.replay.run import prepare
from tracekit.reporting.build import build, of_predictions
from tracekit.reporting.likeness import one_program
from tracekit.reporting.model import Report
from tracekit.reporting.sections.bars import in_order
from tracekit.trace import Trace

KEY = ("family", "op", "dtype", "shape")
"""What a kernel is matched by; its name changes with the GPU and the library."""

OF_THE_FILE = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds")
"""What a trace says of its form, which differs without any difference of the run."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs.

    Attributes:
        label: What it is called in the comparison.
        gpu: Canonical name; ``None`` if it isn't known.
        step_time_us: The step.
        low_us: Lower end of a prediction's 90 % interval; ``None`` for a measurement.
        high_us: Its upper end.
        parts: Family of kernels, ``waiting`` and ``idle`` to time per step.
        kernels: ``family``, ``op``, ``dtype``, ``shape``, ``count``, ``time_us`` per step.
        recorded: What the trace says of its recording.
        alone: Whether it is one rank of several, measured without the others.
        unlisted: How many kernels are missing from ``kernels``: those with least time, of an older prediction's file.
        ranks: Of the job; ``None`` where that isn't known.
        batch: What the job works through in the step; ``None`` where that isn't known.
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
    batch: Batch | None = None

    @property
    def predicted(self) -> bool:
        """Whether it is a prediction."""
        return self.low_us is not None


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the comparison; a side that lacks it has ``None``.

    Attributes:
        what: Family, or the kernel's op, dtype and shape.
        a_us: Time per step in the first run.
        b_us: In the second one.
        a_count: Launches per step in the first run, for kernels.
        b_count: In the second one.
    """

    what: str
    a_us: float | None
    b_us: float | None
    a_count: float | None = None
    b_count: float | None = None

    @property
    def change_us(self) -> float:
        """How much longer the second one is."""
        return (self.b_us or 0.0) - (self.a_us or 0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        a: The first run.
        b: The second one.
        parts: Where the step's time goes in each, by change.
        matched: Kernels that both have, by change.
        new: Kernels that only the second has, longest first.
        vanished: Kernels that only the first has, longest first.
        recorded: What the recordings say differently of themselves: what, in the first, in the second.
        alike: Whether their kernels are those of one program; else their steps say nothing about each other.
    """

    a: Side
    b: Side
    parts: tuple[Change, ...]
    matched: tuple[Change, ...]
    new: tuple[Change, ...]
    vanished: tuple[Change, ...]
    recorded: tuple[tuple[str, str, str], ...]
    alike: bool = True

    def __repr__(self) -> str:
        sides = ", ".join(f"{side.label} {units.duration(side.step_time_us)}" for side in (self.a, self.b))
        change = "different programs" if self.change_pct is None else f"{self.change_pct:+.1f} %"
        return f"Comparison({sides}: {change})"

    @property
    def change_pct(self) -> float | None:
        """How much longer the second run's step is, percent; ``None`` where they aren't alike."""
        return 100 * (self.b.step_time_us / self.a.step_time_us - 1) if self.alike else None

    @property
    def shared_pct(self) -> float:
        """How much of both runs' kernel time is of kernels that both have, percent."""
        return _shared_pct(self.matched, self.new, self.vanished)

    @property
    def more_done_pct(self) -> float | None:
        """How much more B gets done in a time, percent.

        ``None`` where steps do as much, don't tell how much, or are of different programs.
        """
        a, b = self.a.batch, self.b.batch
        if not self.alike or a is None or b is None or a.unit != b.unit or isclose(a.size, b.size):
            return None
        return 100 * (b.per_second(self.b.step_time_us) / a.per_second(self.a.step_time_us) - 1)

    @property
    def longer_pct(self) -> float | None:
        """How much longer the second run takes for the same work, percent; ``None`` where they aren't alike."""
        more = self.more_done_pct
        return self.change_pct if more is None else 100 * (100 / (100 + more) - 1)

    @property
    def against(self) -> tuple[Side, Side] | None:
        """The prediction and the measurement; ``None`` if neither side is predicted, or both are."""
        if self.a.predicted == self.b.predicted:
            return None
        return (self.a, self.b) if self.a.predicted else (self.b, self.a)

    @property
    def other_gpu(self) -> bool:
        """Whether a prediction stands against what was measured on another GPU."""
        gpus = {side.gpu for side in self.against or ()}
        return len(gpus) > 1 and None not in gpus

    @property
    def other_ranks(self) -> bool:
        """Whether a prediction stands against what was measured on more or fewer ranks."""
        ranks = {side.ranks for side in self.against or ()}
        return len(ranks) > 1 and None not in ranks

    @property
    def judged(self) -> tuple[Side, Side] | None:
        """The prediction and what was measured since of the same step; ``None`` where that isn't what is compared."""
        other = self.other_gpu or self.other_ranks or self.more_done_pct is not None
        return self.against if self.alike and not other else None

    @property
    def error_pct(self) -> float | None:
        """How far the prediction is off, percent; ``None`` as for :attr:`judged`."""
        if self.judged is None:
            return None
        predicted, measured = self.judged
        return 100 * (predicted.step_time_us / measured.step_time_us - 1)

    @property
    def inside(self) -> bool | None:
        """Whether the measured step lies in the prediction's interval; ``None`` as for :attr:`judged`."""
        if self.judged is None:
            return None
        predicted, measured = self.judged
        return (predicted.low_us or 0.0) <= measured.step_time_us <= (predicted.high_us or 0.0)


def of_report(report: Report, label: str) -> Side:
    """The measured run of a report."""
    return Side(
        label=label,
        gpu=report.source.gpu,
        step_time_us=report.source.step_time_us,
        low_us=None,
        high_us=None,
        parts=dict(report.bars[0].parts),
        kernels=kernel_table((k.family, k.op, k.dtype, k.shape, k.count, k.time_us) for k in report.kernels),
        recorded=dict(report.provenance.recorded),
        alone=report.source.ranks > report.source.measured == 1,
        ranks=report.source.ranks,
        batch=report.source.batch,
    )


def of_prediction(report: Report, target: Prediction, label: str) -> Side:
    """One of the predictions of a report."""
    place = report.targets.index(target)
    rows = ((k.family, k.op, k.dtype, k.shape, k.count, k.predicted_us[place]) for k in report.kernels)
    return Side(
        label=label,
        gpu=target.gpu,
        step_time_us=target.step.step_time_us,
        low_us=target.low_us,
        high_us=target.high_us,
        parts=dict(report.bars[1 + place].parts),
        kernels=kernel_table(rows),
        recorded={},
        ranks=target.ranks,
        batch=target.batch,
    )


def side(run: Trace | Report | Predictions, gpu: str | None = None, steps: str | None = None) -> Side:
    """What can be compared.

    Args:
        run: A trace or its report for the measured run, or predictions.
        gpu: Which of the predictions is meant; needed if there are several.
        steps: The steps of a trace to measure; all by default.

    Raises:
        TracekitError: This can't be compared, the steps aren't in the trace, or it isn't said which prediction is
            meant.
    """
    if not isinstance(run, Trace | Report | Predictions):
        raise TracekitError(f"{run!r} is no trace, report or predictions.", "Load it: tk.load(path).")
    if isinstance(run, Predictions):
        target = _chosen(run, gpu)
        predicted = of_predictions(run)
        return of_prediction(predicted, target, f"{_name(predicted)}, predicted on {target.label}")
    report = build(prepare(run, steps=steps)) if isinstance(run, Trace) else run
    return of_report(report, _name(report))


def _chosen(predictions: Predictions, gpu: str | None) -> Prediction:
    choose = f"Choose with gpu=: {', '.join(predictions)}."
    if gpu is None and len(predictions) != 1:
        raise TracekitError("These predictions are for several GPUs.", choose)
    try:
        return predictions.targets[0] if gpu is None else predictions[gpu]
    except KeyError as error:
        raise TracekitError(f"{gpu!r} isn't among these predictions.", choose) from error


def _name(report: Report) -> str:
    name = PurePath(report.provenance.trace).name.split(".")[0]
    return units.with_others(name, report.source.measured - 1)


def compare(a: Side, b: Side) -> Comparison:
    """Put two runs side by side."""
    if a.label == b.label:
        a, b = replace(a, label=f"{a.label} (A)"), replace(b, label=f"{b.label} (B)")
    joined = a.kernels.join(b.kernels, on=KEY, how="full", coalesce=True, nulls_equal=True, suffix="_b")
    changes = [_change(*row) for row in joined.select(*KEY, "time_us", "time_us_b", "count", "count_b").iter_rows()]
    families = in_order((*a.parts, *b.parts))
    b = replace(b, parts={family: b.parts[family] for family in families if family in b.parts})
    said = (key for key in {**a.recorded, **b.recorded} if key not in OF_THE_FILE)
    recorded = ((key, a.recorded.get(key, "–"), b.recorded.get(key, "–")) for key in said)
    matched = _by_change(change for change in changes if change.a_us is not None and change.b_us is not None)
    new = _by_change(change for change in changes if change.a_us is None)
    vanished = _by_change(change for change in changes if change.b_us is None)
    return Comparison(
        a=a,
        b=b,
        parts=_by_change(Change(family, a.parts.get(family), b.parts.get(family)) for family in families),
        matched=matched,
        new=new,
        vanished=vanished,
        recorded=tuple(row for row in recorded if row[1] != row[2]) if a.recorded and b.recorded else (),
        alike=one_program(a.kernels, b.kernels, _shared_pct(matched, new, vanished), _cut(a) or _cut(b)),
    )


def kernel_table(rows: Iterable[tuple[object, ...]]) -> pl.DataFrame:
    """Rows of family, op, dtype, shape, count and time to a side's kernels."""
    columns = dict.fromkeys(KEY, pl.String) | {"count": pl.Float64, "time_us": pl.Float64}
    table = pl.DataFrame(list(rows), schema=columns, orient="row")
    return table.group_by(KEY, maintain_order=True).agg(pl.col("count", "time_us").sum())


def _change(
    family: str,
    op: str | None,
    dtype: str | None,
    shape: str | None,
    a_us: float | None,
    b_us: float | None,
    a_count: float | None,
    b_count: float | None,
) -> Change:
    what = " ".join(part for part in (op or family, dtype, units.shape(shape)) if part)
    return Change(what, a_us, b_us, a_count, b_count)


def _shared_pct(matched: Sequence[Change], new: Sequence[Change], vanished: Sequence[Change]) -> float:
    shared, all_us = (
        sum((change.a_us or 0.0) + (change.b_us or 0.0) for change in changes)
        for changes in (matched, (*matched, *new, *vanished))
    )
    return 100 * shared / all_us if all_us else 100.0


def _cut(side: Side) -> bool:
    """Whether its kernels may have other shapes than the job: those of the trace, predicted for several ranks."""
    return side.predicted and (side.ranks or 1) > 1


def _by_change(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: (-abs(change.change_us), change.what)))
