"""How long the steps of a serving engine take, from the kernels that it launches for a model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.power import load_power_law
from predictors.result import SHARED_ERROR_FRACTION
from tracekit.arrays import Floats, Ints
from tracekit.capturing.calls import Call
from tracekit.capturing.program import LONG_US
from tracekit.capturing.timed_trace import GRAPH_US_PER_OP
from tracekit.capturing.timeline import LAUNCH_US, build_trace, describe_capture
from tracekit.comm import Cluster
from tracekit.models.captured import CaptureFacts
from tracekit.parallelism.collective_calls import list_collectives, predict_on_cluster
from tracekit.parallelism.relayout import add_measured_times
from tracekit.prediction.clock import change_clock, compute_demands_us, regulates_clock, spread_slowdown
from tracekit.prediction.intervals import PS_PER_US, KernelSums, compute_end_factors, number_families
from tracekit.prediction.kernel_times import KernelTimePredictor
from tracekit.prediction.part import ENGINE_HALF_WIDTH
from tracekit.run import prepare_run
from tracekit.served.defaults import load_host_times
from tracekit.served.engine_kernels import StepSizes, list_engine_kernels
from tracekit.served.model import ServedModel, ServingEngine

AROUND_US = 2 * LAUNCH_US
"""From a step's launch to its first kernel, and from its last one to the host."""


@dataclass(frozen=True, slots=True)
class StepShapes:
    """What steps work on; arrays of one length.

    Attributes:
        new_tokens: Tokens of prompts.
        prompts: Prompts that these belong to, each alike; 0 without any.
        sequences: Sequences that decode, one token each.
        contexts: Mean tokens in the cache of each of them, besides.
    """

    new_tokens: Floats
    prompts: Floats
    sequences: Floats
    contexts: Floats

    def list_sizes(self) -> list[StepSizes]:
        """List the steps."""
        columns = (self.new_tokens, self.prompts, self.sequences, self.contexts)
        return [StepSizes(*each) for each in np.rint(np.stack(columns, axis=1)).astype(int).tolist()]


@dataclass(frozen=True, slots=True)
class EngineStepTimes:
    """How long steps take; each array has rows of low, likely and high.

    Attributes:
        gpu_us: Time of the GPU's work.
        host_us: Time of the engine's CPU, beside it: for a batch of each stage.
        power_w: Mean power of a GPU's board while it works; no interval.
    """

    gpu_us: Floats
    host_us: Floats
    power_w: Floats

    @property
    def step_us(self) -> Floats:
        """The longer of both: engines prepare a step while the GPU works on the one before."""
        return np.maximum(self.gpu_us, self.host_us)


def predict_engine_steps(
    model: ServedModel, engine: ServingEngine, target: Cluster, steps: StepShapes
) -> EngineStepTimes:
    """Predict how long steps take.

    Args:
        model: What is served.
        engine: What serves it.
        target: GPUs that it runs on; the first of them are used.
        steps: The steps.

    Raises:
        LayoutError: Heads or experts can't be split evenly.
    """
    calls, launches = count_launches(model, engine, steps.list_sizes())
    kernels = predict_calls(calls, engine, target)
    slowdown = _find_slowdowns(kernels, launches, target.gpu)
    power_w = kernels["power_w"].fill_null(target.gpu.tdp_w / 2).to_numpy()
    gpu_us, joules = np.empty((3, len(launches))), np.empty(len(launches))
    for number, (of_step, slower) in enumerate(zip(launches, slowdown.tolist(), strict=True)):
        rows = np.flatnonzero(of_step)
        held = kernels[rows]
        if slower > 1:
            held = change_clock(held, spread_slowdown(held, slower), target.gpu)
        gpu_us[:, number] = _sum_step(held, of_step[rows])
        joules[number] = of_step[rows] @ (held["time_us"].to_numpy() * power_w[rows])
    host_us = engine.stages * load_host_times()[engine.framework].compute_us(steps.sequences + steps.prompts)
    return EngineStepTimes(gpu_us, host_us, joules / gpu_us[1])


def count_launches(model: ServedModel, engine: ServingEngine, steps: Sequence[StepSizes]) -> tuple[list[Call], Floats]:
    """Count how often each step launches each of their distinct calls: calls, and an array of steps by calls."""
    kernels = Counter(kernel for _, kernel in list_engine_kernels(model, engine))
    numbers: dict[str, int] = {}
    calls: list[Call] = []
    cells: list[tuple[int, int, int]] = []
    for kernel, count in kernels.items():
        for at, step in enumerate(steps):
            call = kernel.call(step)
            if call is None:
                continue
            number = numbers.setdefault(repr(call), len(calls))
            if number == len(calls):
                calls.append(call)
            cells.append((at, number, count))
    launches = np.zeros((len(steps), len(calls)))
    rows, columns, counts = np.array(cells).T
    np.add.at(launches, (rows, columns), counts)
    return calls, launches


def predict_calls(calls: Sequence[Call], engine: ServingEngine, target: Cluster) -> pl.DataFrame:
    """Predict the kernels of calls, each alone, as of a captured program: one row each, with its kernel's columns."""
    facts = CaptureFacts(gpu=target.gpu.slug, parameters=0, parameter_bytes=0, held_bytes=0, peak_bytes=0, trains=False)
    builder = build_trace(calls, repeat(LONG_US), GRAPH_US_PER_OP)
    describe_capture(builder, facts, target.gpu, "kernels of an engine")
    table = add_measured_times(prepare_run(builder.load(), framework=engine.name).program)
    predictor = KernelTimePredictor(table, target.gpu, by_shape=True, half_width=ENGINE_HALF_WIDTH)
    times = table.select("family", "dtype").hstack(predictor.predict(target.gpu, {}))
    listed = list_collectives(table, engine.world_size)
    found = listed.select("row").hstack(
        predict_on_cluster(listed.drop("row"), target).select("time_us", "low_us", "high_us")
    )
    joined = times.with_row_index("row").join(found, on="row", how="left", suffix="_new", maintain_order="left")
    ends = ("time_us", "low_us", "high_us")
    return joined.select(
        *(pl.coalesce(f"{name}_new", name).alias(name) for name in ends), pl.exclude("row", *ends, "^.*_new$")
    )


def _find_slowdowns(kernels: pl.DataFrame, launches: Floats, gpu: Gpu) -> Floats:
    """Find how many times as long the matrix units take in each step than at the boost clock."""
    if not regulates_clock(gpu):
        return np.ones(len(launches))
    law, step_us = load_power_law(), launches @ kernels["time_us"].to_numpy() + AROUND_US
    demand = law.idle + launches @ compute_demands_us(kernels, gpu) / step_us
    return np.maximum(law.compute_slowdown(demand, 1.0), 1.0)


def _sum_step(kernels: pl.DataFrame, counts: Floats) -> tuple[float, float, float]:
    """Sum the kernels of a step: low, likely and high, as :mod:`tracekit.prediction` does for programs."""
    time_us = kernels["time_us"].to_numpy()
    on_network = (kernels["family"] == "collective").to_numpy()
    shared = (
        time_us * kernels["shared_error"].fill_null(SHARED_ERROR_FRACTION).fill_nan(SHARED_ERROR_FRACTION).to_numpy()
    )
    family: Ints = kernels.select(number_families())[:, 0].to_numpy()
    sides = [one.to_numpy() for one in (kernels["time_us"], kernels["low_us"], kernels["high_us"])]
    time, low, high, same = (np.rint(one * PS_PER_US) * counts for one in (*sides, shared))
    ends = [
        compute_end_factors(KernelSums(time[mine], low[mine], high[mine], same[mine], family[mine]), known_bias=1.0)
        for mine in (~on_network, on_network)
    ]
    on_gpu, by_network = ends
    low_us, high_us = (
        AROUND_US + float(counts @ np.rint(1e3 * time_us * np.where(on_network, network, gpu))) / 1e3
        for gpu, network in zip(on_gpu, by_network, strict=True)
    )
    return low_us, AROUND_US + float(counts @ np.rint(1e3 * time_us)) / 1e3, high_us
