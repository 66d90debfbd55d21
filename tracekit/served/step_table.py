"""How long an engine's steps take: a table of steps, between whose points the loop interpolates."""

from dataclasses import dataclass, replace

import numpy as np

from tracekit.arrays import Floats
from tracekit.comm import Cluster
from tracekit.prediction.energy import compute_idle_w
from tracekit.served.calibrate import EngineCalibration
from tracekit.served.model import ServedModel, ServingEngine
from tracekit.served.requests import Requests
from tracekit.served.steps import StepShapes, predict_engine_steps

LEAST_NEW_TOKENS = 16
PAIRS_PROMPTS = 8
"""Prompts that the tokens of the largest step are split into, to tell attention's time by its pairs."""


@dataclass(frozen=True, slots=True)
class EngineStepTable:
    """Times of steps; each axis has two points or more, rising.

    Attributes:
        new_tokens: Tokens of prompts in a step.
        sequences: Sequences that decode in it.
        contexts: Mean tokens that the cache holds of each of them.
        step_us: Time by tokens of prompts, sequences and context.
        step_joules: What a GPU takes meanwhile.
        pairs: Pairs of a query and a key in the prompts of each point of ``new_tokens``.
        pair_us: Time of each pair more or less than those.
    """

    new_tokens: Floats
    sequences: Floats
    contexts: Floats
    step_us: Floats
    step_joules: Floats
    pairs: Floats
    pair_us: float

    def scale(self, factor: float) -> "EngineStepTable":
        """Return the table with all times and energies multiplied."""
        return replace(
            self,
            step_us=self.step_us * factor,
            step_joules=self.step_joules * factor,
            pair_us=self.pair_us * factor,
        )


@dataclass(frozen=True, slots=True)
class DecodePace:
    """How long steps that decode take the GPU and the CPU, at the requests' mean context.

    Attributes:
        sequences: Sequences of the steps, rising.
        gpu_us: Low, likely and high times of the GPU, by sequences.
        host_us: The same of the engine's CPU.
    """

    sequences: Floats
    gpu_us: Floats
    host_us: Floats

    def find_us(self, sequences: float) -> Floats:
        """Return times of the GPU and of the CPU for so many sequences, each with its low, likely and high."""
        return np.array(
            [[np.interp(sequences, self.sequences, end) for end in ends] for ends in (self.gpu_us, self.host_us)]
        )

    def scale(self, factor: float) -> "DecodePace":
        """Return it with all times multiplied."""
        return replace(self, gpu_us=self.gpu_us * factor, host_us=self.host_us * factor)


@dataclass(frozen=True, slots=True)
class EngineStepTables:
    """The low, likely and high times of the same steps.

    Attributes:
        pace: Those of the GPU and of the CPU in steps that decode.
    """

    low: EngineStepTable
    likely: EngineStepTable
    high: EngineStepTable
    pace: DecodePace

    def scale(self, factor: float) -> "EngineStepTables":
        """Return the tables with all times multiplied."""
        low, likely, high = (one.scale(factor) for one in (self.low, self.likely, self.high))
        return EngineStepTables(low, likely, high, self.pace.scale(factor))


def build_step_tables(
    model: ServedModel,
    engine: ServingEngine,
    target: Cluster,
    requests: Requests,
    max_tokens: int,
    max_sequences: int,
    calibration: EngineCalibration | None = None,
) -> EngineStepTables:
    """Predict the steps that an engine may take for some requests.

    Args:
        model: What is served.
        engine: What serves it.
        target: What it runs on.
        requests: Lengths of the requests.
        max_tokens: New tokens of a step at most.
        max_sequences: Sequences that run at once at most.
        calibration: How the engine's steps differ from those predicted, if a trace tells.
    """
    tokens = np.concatenate([[0.0], _double_up_to(LEAST_NEW_TOKENS, max(max_tokens, int(requests.input_tokens.max())))])
    sequences = np.concatenate([[0.0], _double_up_to(1, max(max_sequences, 2))])
    contexts = np.unique(np.geomspace(min(64, requests.longest), max(requests.longest, 128), 5).round())
    prompts = np.where(tokens > 0, np.maximum(np.rint(tokens / requests.input_tokens.mean()), 1.0), 0.0)
    grid = [one.ravel() for one in np.meshgrid(tokens, sequences, contexts, indexing="ij")]
    several = min(PAIRS_PROMPTS, int(tokens[-1]))
    more = np.array([[tokens[-1], tokens[-1]], [0.0, 0.0], [0.0, 0.0]])
    all_prompts = np.concatenate([np.repeat(prompts, sequences.size * contexts.size), [1.0, several]])
    news, decodes, held = (np.concatenate(pair) for pair in zip(grid, more, strict=True))
    times = predict_engine_steps(model, engine, target, StepShapes(news, all_prompts, decodes, held))
    if calibration is not None:
        times = calibration.apply(times, news, target.gpu.slug)
    idle_w = compute_idle_w(target.gpu)
    shape = (tokens.size, sequences.size, contexts.size)
    apart = tokens[-1] ** 2 / 2 * (1 - 1 / several)
    pairs = prompts * (tokens / np.maximum(prompts, 1.0)) ** 2 / 2
    made = []
    for gpu_us, step_us in zip(times.gpu_us, times.step_us, strict=True):
        joules = (gpu_us * times.power_w + (step_us - gpu_us) * idle_w) / 1e6
        pair_us = max(float(gpu_us[-2] - gpu_us[-1]), 0.0) / apart if apart else 0.0
        made.append(
            EngineStepTable(
                tokens, sequences, contexts, step_us[:-2].reshape(shape), joules[:-2].reshape(shape), pairs, pair_us
            )
        )
    mean_context = float((requests.input_tokens + requests.output_tokens / 2).mean())
    is_decode = (news == 0) & (decodes > 0) & (held == contexts[np.abs(contexts - mean_context).argmin()])
    pace = DecodePace(decodes[is_decode], times.gpu_us[:, is_decode], times.host_us[:, is_decode])
    low, likely, high = made
    return EngineStepTables(low, likely, high, pace)


def _double_up_to(first: int, last: int) -> Floats:
    """Return numbers that double from the first on, up to the last."""
    doubled = first * 2.0 ** np.arange(max(int(np.ceil(np.log2(last / first))), 0))
    return np.append(doubled[doubled < last], float(last))
