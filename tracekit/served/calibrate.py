"""What a trace of an engine tells of its steps: how much longer or shorter than predicted they are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Floats
from tracekit.comm import Cluster
from tracekit.errors import RequestError
from tracekit.ingest.batches import find_requests
from tracekit.messages import serving as messages
from tracekit.prediction.batch import separate_batches
from tracekit.run import MeasuredRun
from tracekit.served.model import ServedModel, ServingEngine
from tracekit.served.steps import EngineStepTimes, StepShapes, predict_engine_steps

KINDS = ("decode", "prefill")
HOST_BOUND_IDLE = 0.1
"""Idle fraction of a measured step from which its length is the engine's CPU's; a judgement."""
NARROWED = 0.5
"""Of an interval's logarithm, what is left on the GPU that the steps were measured on: other batches and contexts than
those measured remain unknown. A judgement."""


@dataclass(frozen=True, slots=True)
class MeasuredEngineStep:
    """The median step of one kind.

    Attributes:
        step_us: From one to the next.
        busy_us: The GPU's work in it.
        new_tokens: Tokens of prompts.
        prompts: Prompts.
        sequences: Sequences that decode.
    """

    step_us: float
    busy_us: float
    new_tokens: float
    prompts: float
    sequences: float


@dataclass(frozen=True, slots=True)
class EngineCalibration:
    """How steps differ from those predicted.

    Attributes:
        gpu: The GPU that was measured.
        factors: Time of the GPU's work over that predicted, by ``decode`` and ``prefill``; those that were measured.
        host_us: Time of the engine's CPU for a step, where that set the pace; None where the GPU did.
    """

    gpu: str
    factors: Mapping[str, float]
    host_us: float | None

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
        return replace(
            times,
            gpu_us=likely * np.where(is_prefill, prefill, decode) * (times.gpu_us / likely) ** left,
            host_us=host_us,
        )


def measure_engine_steps(run: MeasuredRun) -> dict[str, MeasuredEngineStep]:
    """Measure the steps that decode alone, and those that prefill alone.

    Raises:
        RequestError: No serving engine marked its steps, or all are mixed.
    """
    found = {}
    for kind, alone in separate_batches(run).items():
        counts = alone.chosen_steps.join(find_requests(alone.trace), on="start_ns", how="left").select(
            pl.col("tokens", "prompts", "sequences").median().cast(pl.Float64)
        )
        tokens, prompts, sequences = counts.row(0)
        if kind not in KINDS or not tokens:
            continue
        step = alone.measured_step
        of_decode = (0.0, 0.0, sequences or tokens)
        sizes = of_decode if kind == "decode" else (tokens, prompts or 1.0, 0.0)
        found[kind] = MeasuredEngineStep(step.step_time_us, step.kernel_time_us, *sizes)
    if not found:
        raise RequestError(messages.SERVING_TRACE_WITHOUT_STEPS())
    return found


def calibrate_steps(
    measured: Mapping[str, MeasuredEngineStep],
    model: ServedModel,
    engine: ServingEngine,
    cluster: Cluster,
    context: float,
) -> EngineCalibration:
    """Compare measured steps with what is predicted for them.

    Args:
        measured: Steps by ``decode`` and ``prefill``.
        model: What was served.
        engine: What served it.
        cluster: The GPUs that it ran on.
        context: Tokens that the cache held of each sequence, about.
    """
    steps = list(measured.values())
    shapes = StepShapes(
        np.array([one.new_tokens for one in steps]),
        np.array([one.prompts for one in steps]),
        np.array([one.sequences for one in steps]),
        np.array([context if one.sequences else 0.0 for one in steps]),
    )
    predicted = predict_engine_steps(model, engine, cluster, shapes).gpu_us[1]
    factors = {kind: one.busy_us / time for (kind, one), time in zip(measured.items(), predicted.tolist(), strict=True)}
    decode = measured.get("decode")
    is_paced = decode is not None and decode.busy_us < (1 - HOST_BOUND_IDLE) * decode.step_us
    return EngineCalibration(cluster.gpu.slug, factors, decode.step_us if decode and is_paced else None)
