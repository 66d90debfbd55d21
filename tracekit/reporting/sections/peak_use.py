"""What share of the GPU's peak a step and its phases and modules use, their MFU, and where the rest goes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import polars as pl

from predictors import Batch, Gpu
from tracekit.analysis.idle import IdleBreakdown, attribute_idle_time
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.analysis.sensitivity import SpeedReplays
from tracekit.arrays import DistinctNames, Floats, list_distinct
from tracekit.errors import WhatIfError
from tracekit.format import format_number, format_percent
from tracekit.messages import Message
from tracekit.messages import findings as messages
from tracekit.prediction import Prediction
from tracekit.program import Program
from tracekit.replay.step_time import StepTime
from tracekit.reporting.columns import Column
from tracekit.reporting.peak_losses import (
    AT_PEAK,
    PARTS,
    PRODUCT_FAMILIES,
    PRODUCTS,
    RECOMPUTED,
    UPDATE,
    split_products,
)
from tracekit.reporting.sections.groups import sum_by_module
from tracekit.reporting.sections.step import COLLECTIVE, ReplayedShares
from tracekit.run import MeasuredRun
from tracekit.whatif import compute_step_time_us
from tracekit.whatif.registry import edit_program

EXCHANGE, STEP_END = "exchange", "end of the step"
"""Phases of their own: collectives with what waits for them, and what nothing is launched after."""
AT_HFU = (PRODUCTS, RECOMPUTED)
WHOLE = "whole step"
"""The only phase of a step whose phases aren't known."""
BUBBLE = "pipeline bubble"
MOST_DETAILED = 6
"""Most targets whose phases, modules and causes of idle time are told."""
MIN_SHARE_PCT = 1.0
"""Percent of the step below which a module isn't listed, and a part isn't tried without."""
PART_MEANINGS = {
    PRODUCTS: messages.PEAK_PRODUCTS(),
    RECOMPUTED: messages.PEAK_RECOMPUTED(),
    UPDATE: messages.PEAK_UPDATE(),
    "wide formats": messages.PEAK_WIDE_FORMATS(),
    "memory-bound products": messages.PEAK_MEMORY(),
    "part waves": messages.PEAK_WAVES(),
    "power limit": messages.PEAK_POWER(),
    "slow products": messages.PEAK_SLOW_PRODUCTS(),
    "idle": messages.PEAK_IDLE(),
    BUBBLE: messages.PEAK_BUBBLE(),
}
EDITS_OF_CAUSES = {
    IdleCause.LAUNCH_BOUND: "cuda-graph()", IdleCause.LAUNCH_LATENCY: "cuda-graph()", IdleCause.SYNC_BOUND: "no-sync()",
    IdleCause.DATA_LOADING: "prefetch()", IdleCause.WAITS_FOR_COPY: "pin-memory()",
    IdleCause.WAITS_FOR_COMMUNICATION: "overlap()", COLLECTIVE: "overlap()",
}  # fmt: skip
"""The what-if edit that takes a part away, as far as one does."""


@dataclass(frozen=True, slots=True)
class PeakUse:
    """A part of the step in which the GPU's peak is used, or isn't; all parts of a GPU add up to its step.

    Attributes:
        part: ``products`` is the MFU; with ``recomputed`` it is the HFU.
    """

    on: Annotated[str | None, Column("The target; blank: the measured step.")]
    part: Annotated[str, Column("Stable name; products is the MFU, with recomputed it is the HFU.")]
    meaning: Annotated[Message, Column("What the time goes to.", "what")]
    time_us: Annotated[float, Column("Its time in the median step.", "time")]
    share: Annotated[float, Column("Of the step, percent.", "of the step")]
    edit: Annotated[str | None, Column("What-if edit that takes it away, as far as one does.", "what-if edit")] = None
    mfu_with_edit: Annotated[
        float | None, Column("MFU of the measured step with that edit, by replay.", "MFU with it", format_percent)
    ] = None


@dataclass(frozen=True, slots=True)
class PeakSlice:
    """A phase of the step, with the idle time before its kernels, or a module with all modules inside.

    Attributes:
        parts: Its parts and their times, longest first; those of a phase add up to its time.
    """

    on: Annotated[str | None, Column("The target; blank: the measured step.")]
    kind: Annotated[str, Column("phase or module; exchange is the phase of collectives and of waits for them.")]
    name: Annotated[str, Column("The phase, or the module by class; numbers in braces: modules that are alike.", "of")]
    time_us: Annotated[float, Column("Time in the median step; of a module that of its kernels.", "time")]
    share: Annotated[float, Column("Of the step, percent.", "of the step")]
    mfu: Annotated[float, Column("Its products at the GPU's peak, percent of its time.", "MFU", format_percent)]
    hfu: Annotated[float, Column("The same with products that are computed again.", "HFU", format_percent)]
    lost_share: Annotated[
        float, Column("Percent of the step that goes to all else in it: points of MFU.", "points lost")
    ]
    parts: tuple[tuple[str, float], ...]

    @property
    def mostly(self) -> Annotated[tuple[str, ...], Column(heading="mostly to", show=", ".join)]:
        """What most of the lost points go to."""
        lost = [part for part, _ in self.parts if part not in AT_PEAK]
        return tuple(part.replace("_", " ") for part in lost[:2])


class _Part(NamedTuple):
    phase: str
    part: str
    time_us: float


@dataclass(frozen=True)
class PeakStep:
    """A step, measured or predicted, whose use of the peak is told.

    Attributes:
        on: The target; None of the measured step.
        kernels: The chosen steps' kernels.
        products: The parts of their times, as ``split_products`` returns them.
        shares: What the step is made of.
        idle: Why the GPU was idle; None to tell it in one sum.
        bubble_us: Part of the idle time in which a pipeline's stage waits for others.
    """

    on: str | None
    program: Program
    kernels: pl.DataFrame
    products: Mapping[str, Floats]
    step: StepTime
    shares: ReplayedShares
    per_step: int
    idle: IdleBreakdown | None
    bubble_us: float = 0.0

    @property
    def _works_us(self) -> float:
        return self.step.kernel_time_us - self.step.waiting_us

    @property
    def knows_products(self) -> bool:
        """Whether there are no products, or the operations of any are known: traces without shapes don't tell them."""
        is_there = any(family in PRODUCT_FAMILIES for _, family in self.shares.phases)
        return not is_there or any(of_part.any() for of_part in self.products.values())

    @property
    def scale(self) -> float:
        """Return a median step's time of one kernel in microseconds over its time in all chosen steps."""
        return self._works_us / self.shares.work_us / self.per_step if self.shares.work_us else 0.0

    def list_parts(self, *, has_phases: bool) -> list[_Part]:
        """List the parts of each phase, which add up to the step."""
        spent: dict[tuple[str, str], float] = {}
        for (phase, family), fraction in self.shares.phases.items():
            told = EXCHANGE if family == COLLECTIVE else phase if has_phases else WHOLE
            kind = PRODUCTS if family in PRODUCT_FAMILIES else family
            spent[told, kind] = spent.get((told, kind), 0.0) + fraction * self._works_us
        told_by = DistinctNames.from_column(self.kernels["phase"]) if has_phases else None
        sums = {name: dict(zip(PARTS, row, strict=True)) for name, row in self._sum_products(told_by)}
        found = [_Part(told, kind, time_us) for (told, kind), time_us in spent.items() if kind != PRODUCTS]
        for (told, kind), time_us in spent.items():
            if kind == PRODUCTS:
                found += [_Part(told, *one) for one in _fit_parts(sums.get(told, {}), time_us)]
        return [*found, *self._list_idle(has_phases=has_phases)]

    def _sum_products(self, by: DistinctNames | None) -> Iterator[tuple[str, list[float]]]:
        """Yield the parts of products in the median step, by some names of the kernels or of all."""
        names = by.names if by else [WHOLE]
        number = by.number if by else np.zeros(self.kernels.height, np.int64)
        sums = np.array([np.bincount(number, self.products[part], len(names)) for part in PARTS]) * self.scale
        yield from zip(names, sums.T.tolist(), strict=True)

    def _list_idle(self, *, has_phases: bool) -> Iterator[_Part]:
        if self.bubble_us:
            yield _Part(EXCHANGE if has_phases else WHOLE, BUBBLE, self.bubble_us)
        whole_us = self.step.idle_us + self.step.waiting_us - self.bubble_us
        if self.idle is None:
            yield _Part(STEP_END if has_phases else WHOLE, "idle", whole_us)
            return
        columns = (self.program.kernels[name] for name in ("phase", "family"))
        is_exchange = pl.col("family") == COLLECTIVE
        following = pl.DataFrame(columns).select(pl.when(is_exchange).then(pl.lit(EXCHANGE)).otherwise("phase"))[:, 0]
        rows = self.idle.sum_by_phase(following).rows()
        told_us = sum(time_us for *_, time_us in rows)
        scale = whole_us / told_us if told_us else 0.0
        for phase, cause, time_us in rows:
            yield _Part((phase or STEP_END) if has_phases else WHOLE, cause, time_us * scale)


def _fit_parts(sums: Mapping[str, float], time_us: float) -> Iterator[tuple[str, float]]:
    """Yield the parts of products that work for so long; those that overlap take less than the sum of their times."""
    at_peak_us = sum(sums.get(part, 0.0) for part in AT_PEAK)
    lost_us = sum(sums.values()) - at_peak_us
    fits = min(time_us / at_peak_us, 1.0) if at_peak_us else 1.0
    left_us = max(time_us - at_peak_us, 0.0)
    for part in PARTS:
        if part in AT_PEAK:
            yield part, fits * sums.get(part, 0.0)
        elif lost_us:
            yield part, sums[part] * left_us / lost_us
    if not lost_us:
        yield PARTS[-1], left_us


@dataclass(frozen=True, slots=True)
class PeakUseSection:
    """How the peak is used on each GPU: the parts of each step, then its phases and modules."""

    parts: tuple[PeakUse, ...]
    slices: tuple[PeakSlice, ...]

    def get_share(self, on: str | None, *parts: str) -> float | None:
        """Return the percent of a step that some parts take; None of a step that isn't told."""
        of_step = [row for row in self.parts if row.on == on]
        return sum(row.share for row in of_step if row.part in parts) if of_step else None


def build_peak_use(
    run: MeasuredRun,
    rows: pl.DataFrame,
    targets: Sequence[Prediction],
    replayed: Sequence[ReplayedShares],
    idle: IdleBreakdown,
    replays: SpeedReplays,
    *,
    has_phases: bool,
) -> PeakUseSection:
    """Build the parts of the measured step, and of each predicted one.

    The step of a program that never ran is no baseline for predicted ones: it stands alone or not at all.

    Args:
        run: The measured run.
        rows: The chosen steps' kernels.
        targets: The predictions.
        replayed: What the measured step, and then each target's, is made of.
        idle: Causes of the measured GPU's idle time.
        replays: Replays of the run at other speeds, of which the edits need the one at none.
        has_phases: Whether the phases of the step are known.
    """
    steps: list[PeakStep] = []
    if run.gpu is not None and not (run.is_captured and targets):
        steps.append(
            _split_step(run.program, rows, run.gpu, run.measured_step, replayed[0], idle, has_phases=has_phases)
        )
    batches: dict[int, Batch] = {}
    for place, (target, shares) in enumerate(zip(targets, replayed[1:], strict=True)):
        batch = batches.setdefault(id(target.program), Batch(target.program.kernels))
        steps.append(
            _split_predicted_step(target, shares, batch, with_causes=place < MOST_DETAILED, has_phases=has_phases)
        )
    found = PeakUseSection((), ())
    for place, step in enumerate(steps):
        if not step.knows_products:
            continue
        parts = step.list_parts(has_phases=has_phases)
        slices = _list_slices(step, parts, has_phases=has_phases) if place <= MOST_DETAILED else ()
        found = PeakUseSection((*found.parts, *_sum_parts(step, parts)), (*found.slices, *slices))
    there = set(list_distinct(rows["family"]))
    families = [family for family in PRODUCT_FAMILIES if family in there]
    return replace(found, parts=tuple(_try_edits(run, found.parts, families, replays)))


def _split_step(
    program: Program,
    kernels: pl.DataFrame,
    gpu: Gpu,
    step: StepTime,
    shares: ReplayedShares,
    idle: IdleBreakdown | None,
    *,
    has_phases: bool,
) -> PeakStep:
    per_step = max(program.chosen_steps.height, 1) * program.step_timer.gpus_per_rank
    products = split_products(kernels, gpu, step.step_time_us, per_step, has_phases=has_phases)
    return PeakStep(None, program, kernels, products, step, shares, per_step, idle)


def _split_predicted_step(
    target: Prediction, shares: ReplayedShares, batch: Batch, *, with_causes: bool, has_phases: bool
) -> PeakStep:
    """Split a predicted step, whose program may have other kernels than the trace.

    Args:
        target: The prediction.
        shares: What its step is made of.
        batch: The kernels of its program.
        with_causes: Whether to tell why its GPU is idle.
        has_phases: Whether the phases are known.
    """
    program, gpu, step = target.program, target.target.gpu.gpu, target.step
    kernels = program.kernels[["family", "phase", "module", "dtype"]].hstack(
        [
            *target.replayed_kernels[["time_us", "limiter", "runs_as"]],
            *batch.get_work(gpu)[["work_flops", "work_bytes"]],
            batch.get_tiles(gpu)["waves"],
        ]
    )
    chosen = kernels[np.flatnonzero(program.is_in_chosen_steps)]
    idle = attribute_idle_time(program, target.replay_timeline()) if with_causes else None
    bubble_us = min(target.pipeline.bubble * step.step_time_us, step.idle_us) if target.pipeline else 0.0
    found = _split_step(program, chosen, gpu, step, shares, idle, has_phases=has_phases)
    return replace(found, on=target.label, bubble_us=bubble_us)


def _sum_parts(step: PeakStep, parts: Iterable[_Part]) -> Iterator[PeakUse]:
    """Yield the parts of a step, those of products first, then the kernels of other families, then idle time."""
    summed: dict[str, float] = {PRODUCTS: 0.0}
    for _, part, time_us in parts:
        summed[part] = summed.get(part, 0.0) + time_us
    causes = {*map(str, IdleCause), "idle", BUBBLE}

    def order(part: str) -> tuple[int, int, float, str]:
        of_products = PARTS.index(part) if part in PARTS else len(PARTS)
        return of_products, part in causes, -summed[part], part

    whole_us = step.step.step_time_us or 1.0
    for part in sorted(summed, key=order):
        if summed[part] or part == PRODUCTS:
            yield PeakUse(step.on, part, _tell(part), summed[part], 100 * summed[part] / whole_us)


def _tell(part: str) -> Message:
    if part in PART_MEANINGS:
        return PART_MEANINGS[part]
    return CAUSE_MEANINGS[IdleCause(part)] if part in set(IdleCause) else messages.PEAK_OTHER(family=part)


PHASES = ("forward", "backward", "optimizer", EXCHANGE, STEP_END)


def _list_slices(step: PeakStep, parts: Sequence[_Part], *, has_phases: bool) -> Iterator[PeakSlice]:
    """Yield the phases of a step in order, then its modules but for the smallest, most lost first."""
    if has_phases:
        for phase in PHASES:
            own = [(part, time_us) for name, part, time_us in parts if name == phase and time_us]
            if own:
                yield _make_slice(step, "phase", phase, own)
    modules = (one for one in _list_modules(step) if one.share >= MIN_SHARE_PCT)
    yield from sorted(modules, key=lambda one: (-one.lost_share, one.name))


def _list_modules(step: PeakStep) -> Iterator[PeakSlice]:
    """Yield the modules."""
    if step.kernels["module"].null_count() == step.kernels.height:
        return
    module = DistinctNames.from_column(step.kernels["module"].fill_null(""))
    time_us = step.kernels["time_us"].to_numpy()
    kinds = {**step.products, "kernels without products": time_us - sum(step.products.values())}
    sums = np.array([np.bincount(module.number, of_kind, len(module.names)) for of_kind in (time_us, *kinds.values())])
    order = np.argsort(module.names)
    for one in sum_by_module([module.names[at] for at in order], sums.T[order] * step.scale):
        if one.path is not None and one.sums[0] > 0:
            parts = zip(kinds, one.sums[1:].tolist(), strict=True)
            yield _make_slice(step, "module", one.path, [(part, time_us) for part, time_us in parts if time_us])


def _make_slice(step: PeakStep, kind: str, name: str, parts: Sequence[tuple[str, float]]) -> PeakSlice:
    summed: dict[str, float] = {}
    for part, time_us in parts:
        summed[part] = summed.get(part, 0.0) + time_us
    time_us, whole_us = sum(summed.values()), step.step.step_time_us or 1.0
    mfu_us = summed.get(PRODUCTS, 0.0)
    hfu_us = mfu_us + summed.get(RECOMPUTED, 0.0)
    return PeakSlice(
        on=step.on,
        kind=kind,
        name=name,
        time_us=time_us,
        share=100 * time_us / whole_us,
        mfu=100 * mfu_us / time_us,
        hfu=100 * hfu_us / time_us,
        lost_share=100 * (time_us - mfu_us) / whole_us,
        parts=tuple(sorted(summed.items(), key=lambda one: (-one[1], one[0]))),
    )


def _try_edits(
    run: MeasuredRun, parts: Sequence[PeakUse], families: Sequence[str], replays: SpeedReplays
) -> Iterator[PeakUse]:
    """Yield the parts; those of the measured step with the edit that takes each away, and the MFU with it.

    Args:
        run: The measured run.
        parts: The parts of all steps.
        families: Families of the measured step's products.
        replays: Of :func:`build_peak_use`.
    """
    products_us = sum(row.time_us for row in parts if row.on is None and row.part == PRODUCTS)
    spent_us = sum(row.time_us for row in parts if row.on is None and row.part in PARTS)
    step_us, now_us = run.measured_step.step_time_us, replays.compute_step_time_us()
    for row in parts:
        edit = _find_edit(row, families, spent_us) if row.on is None and row.share >= MIN_SHARE_PCT else None
        try:
            saved_us = now_us - compute_step_time_us(_apply_edit(run.program, edit)) if edit else 0.0
        except WhatIfError:  # nothing that it could change
            edit = None
        left_us = step_us - saved_us if edit else 0.0
        yield replace(row, edit=edit, mfu_with_edit=100 * products_us / left_us) if left_us > 0 else row


def _apply_edit(program: Program, edit: str) -> Program:
    (edited,) = edit_program(program, [edit])
    return edited.program


def _find_edit(row: PeakUse, families: Sequence[str], spent_us: float) -> str | None:
    """Find the edit that takes a part away; products of some families take less time without one of their parts."""
    if row.part in AT_PEAK or row.part in ("idle", BUBBLE):
        return None
    if row.part in PARTS:
        return f"scale(family={'|'.join(families)}, {format_number(1 - row.time_us / spent_us)})"
    if row.part in EDITS_OF_CAUSES:
        return EDITS_OF_CAUSES[row.part]
    return None if row.part in set(IdleCause) else f"scale(family={row.part}, 0)"
