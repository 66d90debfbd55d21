"""What a finding is, what findings look at, and helpers that compute what a change would save."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

import predictors
from tracekit.analysis.idle import END_OF_STEP, IdleBreakdown
from tracekit.analysis.idle_causes import IdleCause
from tracekit.analysis.sensitivity import SpeedReplays
from tracekit.arrays import IN_ORDER, Floats, find_nulls, mark_any, mark_equal, select_table
from tracekit.errors import WhatIfError
from tracekit.format import format_shape
from tracekit.messages import Message
from tracekit.messages import findings as told
from tracekit.prediction import Prediction
from tracekit.reporting.sections.step import ReplayedShares, StepPart
from tracekit.run import MeasuredRun
from tracekit.trace import RankTrace
from tracekit.whatif.registry import EditFunction, compute_step_time_us
from tracekit.workload.steps import assign_steps


@dataclass(frozen=True, slots=True)
class Evidence:
    """One row that shows the finding.

    Attributes:
        what: An op with its shapes, a call, or a step.
        time_us: Its time per step; ``None`` if that isn't meaningful.
        detail: What is wrong with it, or how often it happens; ``None`` if its time says all.
    """

    what: str
    time_us: float | None
    detail: Message | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The resource that takes most of a target's critical path.

    Attributes:
        limit: ``host``, ``communication``, ``gpu``, ``latency`` or ``unexplained``.
        share: Percent of the target's critical path.
        share_here: Percent of the measured step's critical path; None where nothing was measured.
    """

    limit: str
    share: float
    share_here: float | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that limits the step or that the reader must know.

    Attributes:
        message: What it is; its hint is what to try.
        saves_us: Step time that it would save, by replay; ``None`` if unknown.
        evidence: The rows that show it, longest first.
        on: The target it applies to; ``None`` for the measured run.
        bottleneck: The resource that limits this target, if that is the finding.
        parts: Names of the parts of the measured step that it is about as a whole.
    """

    message: Message
    saves_us: float | None
    evidence: tuple[Evidence, ...] = ()
    on: str | None = None
    bottleneck: Bottleneck | None = None
    parts: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """Stable name for programs and tests."""
        return self.message.code

    @property
    def title(self) -> str:
        """One sentence with numbers."""
        return self.message.render_text()

    @property
    def advice(self) -> str:
        """What to try."""
        return self.message.render_hint()


MIN_SAVING_FRACTION = 0.01
"""Fraction of the step that a finding must save to be reported."""
MAX_EVIDENCE_ROWS = 5
"""Maximum rows of evidence."""
MAX_GRAPH_FRACTION = 0.9
"""Fraction of kernels in CUDA graphs from which on more graphs are no advice."""
COMPILED_REGION_PATTERN = r"^Torch-Compiled Region|^CompiledFunction$"
"""Ops around the regions that ``torch.compile`` made, by the current name and that of PyTorch 2.0."""


@dataclass(frozen=True)
class FindingContext:
    """Input of the findings.

    Attributes:
        kernels: The chosen steps' kernels, as built by ``tracekit.reporting.kernel_rows``.
        idle: Causes of the GPU's idle time, on the scale of the measured step.
        replays: Replays of the run at other speeds.
        parts: The parts of the measured step, longest first.
        replayed: What the measured step, and then each target's, is made of.
    """

    run: MeasuredRun
    kernels: pl.DataFrame
    idle: IdleBreakdown
    replays: SpeedReplays
    parts: tuple[StepPart, ...]
    replayed: tuple[ReplayedShares, ...]
    targets: tuple[Prediction, ...] = ()

    @cached_property
    def is_compiled(self) -> bool:
        """Whether ``torch.compile`` made some of the measured code."""
        return any(rank.has_named("ops", COMPILED_REGION_PATTERN) for rank in self.run.ranks)

    def select_families(self, *families: str) -> pl.DataFrame:
        """Select the kernels of some families."""
        return select_table(self.kernels, mark_any(self.kernels["family"], families))

    @cached_property
    def graph_fraction(self) -> float:
        """Fraction of the kernels of the chosen steps that CUDA graphs launch."""
        launches = self.run.graph.nodes.is_graph_launch
        launcher = self.run.graph.nodes.launcher[self.kernels["kernel"].to_numpy()]
        return float(np.append(launches, False)[launcher].mean()) if launcher.size else 0.0

    @property
    def step_count(self) -> int:
        """Number of chosen steps."""
        return self.run.chosen_steps.height

    @property
    def step_time_us(self) -> float:
        """Measured step time in microseconds."""
        return self.run.measured_step.step_time_us

    def compute_saving_us(self, rows: pl.DataFrame, time_us: pl.Series | Floats | float) -> float:
        """Compute how much shorter the step is if some kernels take other times.

        The saving is that of the replay, on the scale of the measured step.

        The rows have their row number as ``kernel``.
        """
        times = self.run.program.kernel_us.copy()
        times[rows["kernel"].to_numpy()] = time_us
        return self.step_time_us - self.run.program.replay_step_time_us(times)

    def compute_edit_saving_us(self, edit: EditFunction) -> float:
        """Compute how much shorter the step is with a what-if edit; 0 if the edit finds nothing to change."""
        try:
            edited = edit(self.run.program)
        except WhatIfError:
            return 0.0
        return self.replays.compute_step_time_us() - compute_step_time_us(edited.program)

    def compute_merge_saving_us(self, rows: pl.DataFrame, *alike: str) -> float:
        """Compute how much shorter the step is if each group of kernels becomes one as long as its longest kernel.

        The rows have their row number as ``kernel``; the columns ``alike`` define a group.
        """
        longest = pl.col("time_us") == pl.col("time_us").max().over(alike)
        kept = longest & (longest.cum_sum().over(alike) == 1)
        return self.compute_saving_us(rows, rows.select(pl.when(kept).then("time_us").otherwise(0.0)).to_series())

    def is_worth_reporting(self, saving_us: float) -> bool:
        """Return whether a saving is large enough to be reported."""
        return saving_us >= MIN_SAVING_FRACTION * self.step_time_us

    def predict_on_source_us(self, rows: pl.DataFrame) -> pl.Series:
        """Predict changed kernels on the measured GPU by the model alone.

        Returns:
            Times in microseconds, at most the measured ones; the measured times if the GPU is unknown.
        """
        if self.run.gpu is None:
            return rows["time_us"]
        alone = predictors.predict(rows, self.run.gpu)["time_us"]
        return pl.DataFrame({"alone": alone, "took": rows["time_us"]}).min_horizontal()

    def get_model_us(self, rows: pl.DataFrame) -> pl.Series:
        """Return what :meth:`predict_on_source_us` would predict for kernels as they were recorded."""
        if self.run.gpu is None:
            return rows["time_us"]
        return rows.select(pl.min_horizontal("model_us", "time_us")).to_series()

    def list_launch_remedies(self) -> list[Message]:
        """List what shortens the CPU's work, without what the trace shows in use already."""
        remedies = []
        if self.graph_fraction < MAX_GRAPH_FRACTION:
            remedies.append(told.MORE_CUDA_GRAPHS() if self.graph_fraction else told.CUDA_GRAPHS())
        if not self.is_compiled:
            remedies.append(told.TORCH_COMPILE())
        remedies.append(told.LARGER_BATCH())
        waited_us = sum(part.time_us for part in self.parts if part.name == IdleCause.SYNC_BOUND)
        return [*remedies, told.FEWER_WAITS()] if self.is_worth_reporting(waited_us) else remedies

    def sum_per_step_us(self, rows: pl.DataFrame) -> float:
        """Sum the time of some kernels in a mean step."""
        return float(rows["time_us"].sum()) / self.step_count

    def list_evidence(
        self, rows: pl.DataFrame, describe: Callable[..., Message] = told.OP_LAUNCHED, **values: pl.Expr
    ) -> tuple[Evidence, ...]:
        """List the ops and shapes with most time among some kernels.

        ``describe`` gets ``launches`` in a mean step, and ``values`` of the first kernel of each.
        """
        grouped = rows.lazy().group_by(pl.coalesce("op", "name").alias("op"), "input_dims", "dtype")
        table = grouped.agg(
            pl.col("time_us").sum(), count=pl.len(), **{name: value.first() for name, value in values.items()}
        )
        ordered = table.sort("time_us", "op", "input_dims", "dtype", descending=[True, False, False, False])
        return tuple(
            Evidence(
                what=" ".join(part for part in (row["op"], row["dtype"], format_shape(row["input_dims"])) if part),
                time_us=row["time_us"] / self.step_count,
                detail=describe(launches=row["count"] / self.step_count, **{name: row[name] for name in values}),
            )
            for row in ordered.head(MAX_EVIDENCE_ROWS).collect(engine=IN_ORDER).iter_rows(named=True)
        )

    def select_in_steps(self, select_rows: Callable[[RankTrace], pl.DataFrame]) -> pl.DataFrame:
        """Select what began on the CPU within the chosen steps, of all ranks.

        ``select_rows`` returns the candidate rows of a rank, with ``ts_ns``.
        """
        tables = [select_rows(rank) for rank in self.run.ranks]
        chosen = self.run.chosen_steps
        steps = [select_table(chosen, mark_equal(chosen["rank"], rank.rank or 0)) for rank in self.run.ranks]
        inside = (~find_nulls(assign_steps(table["ts_ns"], own)) for table, own in zip(tables, steps, strict=True))
        return pl.concat(select_table(table, mine) for table, mine in zip(tables, inside, strict=True))

    def list_longest_spans(self, spans: pl.DataFrame, describe: Callable[[float], Message]) -> tuple[Evidence, ...]:
        """List the names with most time among spans on the CPU, in a mean step.

        The spans have ``name`` and ``dur_ns``, of the chosen steps; ``describe`` gets how many of a name there are in a
        mean step.
        """
        named = spans.lazy().group_by("name").agg(pl.col("dur_ns").sum() / 1e3, count=pl.len())
        ordered = (
            named.sort("dur_ns", "name", descending=[True, False]).head(MAX_EVIDENCE_ROWS).collect(engine=IN_ORDER)
        )
        return tuple(
            Evidence(name, time_us / self.step_count, describe(count / self.step_count))
            for name, time_us, count in ordered.iter_rows()
        )

    def list_late_launches(self, detail: Message, *causes: IdleCause) -> tuple[Evidence, ...]:
        """List the ops before which the GPU idled most for some causes."""
        ops = self.idle.sum_by_op(self.run.kernels, *causes).head(MAX_EVIDENCE_ROWS)
        return tuple(
            Evidence(op if op == END_OF_STEP else f"before {op}", time_us, detail) for op, time_us, _ in ops.iter_rows()
        )
