"""What findings look at, and how they tell what something would save."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

import predictors
from tracekit.arrays import Floats
from tracekit.errors import WhatIfError
from tracekit.prediction import Prediction
from tracekit.replay.causes import Cause
from tracekit.replay.idle import END_OF_STEP, Idle
from tracekit.replay.run import Run
from tracekit.replay.whatif import Edited, saving_us
from tracekit.reporting.findings.model import Evidence
from tracekit.trace import RankTrace
from tracekit.units import counted, shape
from tracekit.workload.steps import assign

WORTH = 0.01
"""Part of the step that a finding has to save to be told."""
ROWS = 5
"""Rows of evidence."""


@dataclass(frozen=True)
class Case:
    """What findings look at.

    Attributes:
        run: The measured run.
        kernels: The chosen steps' kernels, as ``tracekit.reporting.sections.table`` gives them.
        idle: Why the GPU was idle.
        targets: The predictions.
    """

    run: Run
    kernels: pl.DataFrame
    idle: Idle
    targets: tuple[Prediction, ...] = ()

    @property
    def steps(self) -> int:
        """How many steps the kernels are of."""
        return self.run.chosen.height

    @property
    def step_time_us(self) -> float:
        """The measured step."""
        return self.run.measured.step_time_us

    def saving_us(self, rows: pl.DataFrame, time_us: pl.Series | Floats | float) -> float:
        """How much shorter the step is if some kernels take another time; the replay's, on the measured step's scale.

        Args:
            rows: These kernels, with their row number ``kernel``.
            time_us: What they take instead.
        """
        times = self.run.kernel_us.copy()
        times[rows["kernel"].to_numpy()] = time_us
        return self.step_time_us - self.run.step_with(times).step_time_us

    def saved_by(self, edit: Callable[[Run], Edited]) -> float:
        """How much shorter the step is with a what-if edit; 0 where that finds nothing to change."""
        try:
            edited = edit(self.run)
        except WhatIfError:
            return 0.0
        return saving_us(self.run, edited.run)

    def saved_by_merging(self, rows: pl.DataFrame, *alike: str) -> float:
        """How much shorter the step is if one kernel stands for several and lasts as long as the longest of them.

        Args:
            rows: These kernels, with their row number ``kernel``.
            alike: Columns that those share that are merged.
        """
        longest = pl.col("time_us") == pl.col("time_us").max().over(alike)
        kept = longest & (longest.cum_sum().over(alike) == 1)
        return self.saving_us(rows, rows.select(pl.when(kept).then("time_us").otherwise(0.0)).to_series())

    def worth(self, saving_us: float) -> bool:
        """Whether a saving is worth a finding."""
        return saving_us >= WORTH * self.step_time_us

    def modelled_us(self, rows: pl.DataFrame) -> pl.Series:
        """What the model alone says of kernels on the measured GPU; what they took where that is less or not known."""
        if self.run.gpu is None:
            return rows["time_us"]
        alone = predictors.predict(rows, self.run.gpu)["time_us"]
        return pl.DataFrame({"alone": alone, "took": rows["time_us"]}).min_horizontal()

    def per_step(self, rows: pl.DataFrame) -> float:
        """Summed time of some kernels in a mean step."""
        return float(rows["time_us"].sum()) / self.steps

    def evidence(self, rows: pl.DataFrame, detail: pl.Expr | None = None) -> tuple[Evidence, ...]:
        """The ops and shapes with most time among some kernels.

        Args:
            rows: The kernels.
            detail: What to say of each beside its launches.
        """
        told = (pl.lit("") if detail is None else detail).first().alias("detail")
        grouped = rows.group_by(pl.coalesce("op", "name").alias("op"), "input_dims", "dtype")
        table = grouped.agg(pl.col("time_us").sum(), told, count=pl.len())
        ordered = table.sort("time_us", "op", "input_dims", "dtype", descending=[True, False, False, False]).head(ROWS)
        return tuple(
            Evidence(
                what=" ".join(part for part in (row["op"], row["dtype"], shape(row["input_dims"])) if part),
                time_us=row["time_us"] / self.steps,
                detail=_joined(f"{counted(row['count'] / self.steps)} launches", row["detail"]),
            )
            for row in ordered.iter_rows(named=True)
        )

    def of_steps(self, of_rank: Callable[[RankTrace], pl.DataFrame]) -> pl.DataFrame:
        """What began on the CPU within the chosen steps, of all ranks.

        Args:
            of_rank: The rows of a rank that are meant, by ``ts_ns``.
        """
        tables = [of_rank(rank) for rank in self.run.ranks]
        chosen = self.run.chosen
        steps = [chosen.filter(rank=rank.rank or 0) if "rank" in chosen.columns else chosen for rank in self.run.ranks]
        inside = (assign(table["ts_ns"], own).is_not_null() for table, own in zip(tables, steps, strict=True))
        return pl.concat(table.filter(mine) for table, mine in zip(tables, inside, strict=True))

    def most_time(self, spans: pl.DataFrame, times: str) -> tuple[Evidence, ...]:
        """The names with most time among what ran on the CPU, in a mean step.

        Args:
            spans: ``name`` and ``dur_ns``, of the chosen steps.
            times: What the detail counts.
        """
        named = spans.group_by("name").agg(pl.col("dur_ns").sum() / 1e3, count=pl.len())
        ordered = named.sort("dur_ns", "name", descending=[True, False]).head(ROWS)
        return tuple(
            Evidence(name, time_us / self.steps, f"{counted(count / self.steps)} {times}")
            for name, time_us, count in ordered.iter_rows()
        )

    def late_launches(self, detail: str, *causes: Cause) -> tuple[Evidence, ...]:
        """The ops before which the GPU idled most for some causes.

        Args:
            detail: What to say of each.
            causes: The causes.
        """
        ops = self.idle.by_op(self.run.kernels, *causes).head(ROWS)
        return tuple(
            Evidence(op if op == END_OF_STEP else f"before {op}", time_us, detail) for op, time_us, _ in ops.iter_rows()
        )


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
