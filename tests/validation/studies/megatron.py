"""Holds predictions of tensor-parallel training, and of copies of it, against Megatron-LM's published step times.

python -m tests.validation.studies.megatron

No trace of these jobs is public, so transformers of their sizes stand in: their ops are PyTorch's own, activations
recomputed, their kernels' times those of a roofline, all scaled by the one factor that gives the smallest model its
published time on one GPU. From there on nothing is scaled: what is tested is what sharing a layer costs, and copies.
Source: Megatron-LM, README of version 2.0, images/cases.png, scaling-mp.png and scaling-dp.png (DGX A100; a batch of 16
samples of 1,024 tokens for each copy).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import tracekit as tk
from sample_traces.synthetic.models import Shape
from tests.validation.published_jobs.scaled_transformer import as_long_as, scaled
from tests.validation.tables import print_table
from tracekit.prediction.model import Prediction
from tracekit.trace import Trace

NODE, NETWORK = "8xa100-sxm-40gb", "hdr200"
"""Eight 200 Gbit/s adapters a node."""
BATCH, TOKENS, VOCABULARY, COPIES = 16, 1024, 51200, 128
ROUNDS = 2


@dataclass(frozen=True)
class Case:
    """A model, over how many GPUs its layers are shared, and milliseconds of a step, alone and in 128 copies."""

    name: str
    width: int
    heads: int
    layers: int
    tp: int
    alone_ms: float
    copies_ms: float

    @property
    def shape(self) -> Shape:
        """Of the model."""
        return Shape(self.layers, self.width, self.heads, VOCABULARY, BATCH, TOKENS)


CASES = (
    Case("1.2B", 1920, 15, 24, 1, 1076, 1153),
    Case("2.0B", 2304, 18, 30, 2, 1026, 1101),
    Case("4.2B", 3072, 24, 36, 4, 1162, 1242),
    Case("8.7B", 4096, 32, 42, 8, 1343, 1380),
)


def main() -> None:
    """Prints two rows for each model, but the one that sets the scale."""
    print_table("| model | layout | measured | predicted | error | all-reduces | in interval |", rows())


def rows() -> Iterator[str]:
    """The table's lines."""
    first = CASES[0]
    slowdown = as_long_as(1e3 * first.alone_ms, first.shape, first.name, alone_us, ROUNDS, recomputes=True)[1]
    for case in CASES:
        trace = scaled(case.shape, case.name, slowdown, recomputes=True)
        for dp, measured_ms in ((1, case.alone_ms), (COPIES, case.copies_ms)):
            if (case, dp) != (first, 1):
                yield row(case, dp, measured_ms, predicted(trace, case.tp, dp))


def row(case: Case, dp: int, measured_ms: float, found: Prediction) -> str:
    """A line of the table."""
    step_ms, low_ms, high_ms = (us / 1e3 for us in (found.step.step_time_us, found.low_us, found.high_us))
    inside = "yes" if low_ms <= measured_ms <= high_ms else "no"
    return (
        f"| {case.name} | tp {case.tp} x dp {dp} | {measured_ms:,.0f} ms | {step_ms:,.0f} ms "
        f"| {100 * (step_ms / measured_ms - 1):+.1f} % | {found.step.exposed_comm_us / 1e3:.0f} ms | {inside} |"
    )


def alone_us(trace: Trace) -> float:
    """A step on one GPU."""
    return predicted(trace, 1, 1).step.step_time_us


def predicted(trace: Trace, tp: int, dp: int) -> Prediction:
    """The stand-in on so many GPUs."""
    nodes = max(tp * dp // 8, 1)
    cluster = f"{nodes}x{NODE}@{NETWORK}" if nodes > 1 else NODE
    return tk.predict(trace, cluster=cluster, tp=tp, dp=dp, source_gpu="a100-sxm-40gb", calibration=False)[cluster]


if __name__ == "__main__":
    main()
