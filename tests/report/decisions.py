"""Plain steps and summaries with round numbers, for tests of the decision."""

from typing import Any

from tracekit.messages.predictions import MEMORY_UNKNOWN
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.energy import StepEnergy
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import Coverage, PredictedStep
from tracekit.replay.step_time import StepTime
from tracekit.reporting.sections.step import SourceSummary

STEP_US = 3.6e6
"""A step of the trace: of one GPU it costs a thousandth of the price of an hour."""


def make_source(price: float | None = None, batch: StepBatch | None = None, **changed: Any) -> SourceSummary:
    """Make the summary of a run on one A100."""
    facts: dict[str, Any] = {
        "trace": "trace.json", "gpu": "a100-sxm-80gb", "gpu_name": "A100", "resolution": "", "rank": None, "ranks": 1,
        "measured": 1, "steps": 1, "steps_marked": True, "batches": None, "step_time_us": STEP_US, "mean_us": STEP_US,
        "kernel_time_us": STEP_US, "exposed_comm_us": 0.0, "waiting_us": 0.0, "idle_us": 0.0, "kernels": 1,
        "shapes_recorded": True, "price": price, "batch": batch,
    }  # fmt: skip
    return SourceSummary(**(facts | changed))


def make_step(gpu: str, likely: float, low: float, high: float, **changed: Any) -> PredictedStep:
    """Make a step on one GPU; its times are multiples of the trace's."""
    facts: dict[str, Any] = {
        "gpu": gpu, "name": gpu.upper(), "step": StepTime(likely * STEP_US, 0.0, 0.0, 0.0, 1, 0.0, likely * STEP_US),
        "low_us": low * STEP_US, "high_us": high * STEP_US, "speedup": 1 / likely,
        "mean_low_us": low * STEP_US, "mean_high_us": high * STEP_US,
        "coverage": Coverage(100.0, 0.0, 0.0),
        "energy": StepEnergy(100.0 * likely, 100.0 * low, 100.0 * high, 100.0, 90.0, 110.0, 400.0), "notes": (),
        "memory": MemoryFit(None, None, True, MEMORY_UNKNOWN(usable_bytes=1)),
    }  # fmt: skip
    return PredictedStep(**(facts | changed))
