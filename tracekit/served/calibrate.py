"""What a trace of an engine tells of its steps: how much longer or shorter than predicted they are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import polars as pl

from tracekit.arrays import Floats
from tracekit.comm import Cluster
from tracekit.errors import RequestError
from tracekit.ingest.batches import find_requests, find_served_batches
from tracekit.messages import serving as messages
from tracekit.prediction.batch import separate_batches
from tracekit.run import MeasuredRun
from tracekit.served.model import ServedModel, ServingEngine
from tracekit.served.steps import EngineStepTimes, StepShapes, predict_engine_steps

KINDS = ("decode", "prefill")
MIXED = "mixed"
"""Kind of steps whose prompts take most of their time: they tell what prefill takes where no step prefills alone."""
HOST_BOUND_IDLE = 0.1
"""Idle fraction of a measured step from which its length is the engine's CPU's; a judgement."""
NARROWED = 0.5
"""Of an interval's logarithm, what is left on the GPU that the steps were measured on: other batches and contexts than
those measured remain unknown. A judgement."""


@dataclass(frozen=True, slots=True)
class MeasuredEngineStep:
    """The median step of one kind.

    Attributes:
        kind: decode, prefill or mixed.
        step_us: From one to the next.
        busy_us: The GPU's work in it.
        new_tokens: Tokens of prompts.
        prompts: Prompts.
        sequences: Sequences that decode.
        context: Mean tokens in the cache of each of these; None where the engine doesn't tell.
    """

    kind: str
    step_us: float
    busy_us: float
    new_tokens: float
    prompts: float
    sequences: float
    context: float | None = None

    @property
    def is_paced(self) -> bool:
        """Whether the engine's CPU sets the pace."""
        return self.busy_us < (1 - HOST_BOUND_IDLE) * self.step_us


@dataclass(frozen=True, slots=True)
class EngineCalibration:
    """How steps differ from those predicted.

    Attributes:
        gpu: The GPU that was measured.
        factors: Time of the GPU's work over that predicted, by ``decode`` and ``prefill``; those that were measured.
        host_us: Time of the engine's CPU for a step, where that set the pace; None where the GPU did.
        gap_us: Time between the GPU's work of two steps, where the GPU set the pace.
        assumed_context: Tokens that were assumed in the cache of a sequence; None where the engine tells.
    """

    gpu: str
    factors: Mapping[str, float]
    host_us: float | None = None
    gap_us: float = 0.0
    assumed_context: float | None = None

    def apply(self, times: EngineStepTimes, new_tokens: Floats, gpu: str) -> EngineStepTimes:
        """Return the times of steps as the measured engine would take them.

        Args:
            times: As predicted.
            new_tokens: Tokens of prompts in each step.
            gpu: The GPU that they are for.
        """
        decode, prefill = (self.factors.get(kind, 1.0) for kind in KINDS)
        is_prefill = new_tokens > 0
        is_measured = np.where(is_prefill, "prefill" in self.factors, "decode" in self.factors) & (gpu == self.gpu)
        likely, left = times.gpu_us[1], np.where(is_measured, NARROWED, 1.0)
        host_us = times.host_us
        if self.host_us is not None:
            host_us = host_us * (self.host_us / host_us[1].min())
        calibrated_us = likely * np.where(is_prefill, prefill, decode) * (times.gpu_us / likely) ** left
        return replace(times, gpu_us=calibrated_us + self.gap_us, host_us=host_us)


def measure_engine_steps(runs: Iterable[MeasuredRun]) -> list[MeasuredEngineStep]:
    """Measure the steps of each kind, alone, of traces of one engine.

    Raises:
        RequestError: No serving engine marked its steps.
    """
    found = [
        step
        for run in runs
        for kind, alone in separate_batches(run).items()
        if (step := _measure_kind(kind, alone)) is not None
    ]
    if not found:
        raise RequestError(messages.SERVING_TRACE_WITHOUT_STEPS())
    return found


def _measure_kind(kind: str, alone: MeasuredRun) -> MeasuredEngineStep | None:
    """Return the median step; None of a kind that tells neither prompts nor sequences."""
    told = find_served_batches(alone.trace).select(
        start_ns="begin",
        prompt_tokens="prefill_queries",
        context=pl.col("decode_pairs") / pl.col("decode_queries"),
    )
    requests = find_requests(alone.trace).join(told, on="start_ns", how="left")
    counts = alone.chosen_steps.join(requests, on="start_ns", how="left").select(
        pl.col("tokens", "prompts", "sequences", "prompt_tokens", "context").median().cast(pl.Float64)
    )
    tokens, prompts, sequences, prompt_tokens, context = counts.row(0)
    decoding = {"decode": sequences or tokens, "prefill": 0.0, MIXED: sequences}.get(kind)
    if not tokens or decoding is None:
        return None
    new = 0.0 if kind == "decode" else prompt_tokens or tokens - decoding
    step = alone.measured_step
    return MeasuredEngineStep(
        kind, step.step_time_us, step.kernel_time_us, new, prompts or 1.0 if new else 0.0, decoding, context
    )


def calibrate_steps(
    measured: Sequence[MeasuredEngineStep], model: ServedModel, engine: ServingEngine, cluster: Cluster, context: float
) -> EngineCalibration:
    """Compare measured steps with what is predicted for them.

    Args:
        measured: The steps.
        model: What was served.
        engine: What served it.
        cluster: The GPUs that it ran on.
        context: Tokens that the cache held of each sequence, about, of engines that don't tell.
    """
    shapes = StepShapes(
        np.array([one.new_tokens for one in measured]),
        np.array([one.prompts for one in measured]),
        np.array([one.sequences for one in measured]),
        np.array([(one.context or context) if one.sequences else 0.0 for one in measured]),
    )
    predicted = predict_engine_steps(model, engine, cluster, shapes).gpu_us[1].tolist()
    ratios: dict[str, list[float]] = {}
    for one, time_us in zip(measured, predicted, strict=True):
        ratios.setdefault(one.kind, []).append(one.busy_us / time_us)
    mixed = ratios.pop(MIXED, None)
    if mixed and "prefill" not in ratios:
        ratios["prefill"] = mixed
    paced_us = [one.step_us for one in measured if one.is_paced and one.kind == "decode"]
    gaps_us = [one.step_us - one.busy_us for one in measured if not one.is_paced]
    return EngineCalibration(
        gpu=cluster.gpu.slug,
        factors={kind: median(ratios[kind]) for kind in KINDS if kind in ratios},
        host_us=median(paced_us) if paced_us else None,
        gap_us=median(gaps_us) if gaps_us and not paced_us else 0.0,
        assumed_context=context if any(one.sequences and one.context is None for one in measured) else None,
    )
