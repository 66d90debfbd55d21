"""Holds predictions of pipelines against published throughputs of one job in several of them.

python -m tests.validation.studies.pipelines [NAME...]

No trace of these jobs is public, so a transformer of their size stands in: its ops are PyTorch's own, its kernels'
times those of a roofline, all scaled so that one row of the job is met. What is tested is what tracekit makes of other
numbers of micro-batches, other schedules, and a larger head.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tracekit as tk
from sample_traces.synthetic.models import Shape
from tests.validation.published_jobs.scaled_transformer import as_long_as, scaled
from tests.validation.tables import print_table
from tracekit.prediction.model import Prediction
from tracekit.trace import Trace

ZERO_BUBBLE = "Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, tables 3, 4, 8 and 9"
VOCABULARY = "sail-sg/VocabularyParallelism, artifact/example-results/full-exp.txt, baseline"
LAYOUTS = "Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts, data/llama_*_bfloat16_*_GPUs_*.xlsx"
TITAN = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 5"
ROUNDS = 3
"""Of scaling the stand-in's kernels; a step also holds sends, so it isn't proportional to them."""

NODE, NETWORK = "8xa100-sxm-80gb", "roce200"
"""Of how fast the networks are nothing is said: 200 Gbit/s for each GPU is taken."""

VOCABULARY_OF_ITS_PARAMETERS, LLAMA_WORDS = 32000, 128000
"""Vocabularies: what the zero-bubble paper's models hold beside their layers, with embedding and head tied; and what
is left of the parameters that Llama 13B's utilization was worked out with."""


@dataclass(frozen=True)
class Row:
    """A published step.

    Attributes:
        schedule: '1F1B', 'interleaved' with a layer in each chunk unless ``chunks`` says how many, or 'ZB-H1'.
        micro_batches: In a step.
        samples_per_s: Of one GPU.
        batch: Samples of a micro-batch, over those of the case's shape.
        stages: Of the pipeline, where they aren't those of the case.
        dp: Copies of the pipeline.
        tp: Ranks that share each layer.
        vocabulary: Of the model, where it isn't that of the case's shape.
        chunks: Of layers on each stage.
    """

    schedule: str
    micro_batches: int
    samples_per_s: float
    batch: float = 1
    stages: int | None = None
    dp: int = 1
    tp: int = 1
    vocabulary: int | None = None
    chunks: int | None = None

    def __str__(self) -> str:
        """Such as ``1F1B, 24, twice as large``."""
        more = [
            f"{self.batch:g} times as large" if self.batch != 1 else "",
            f"{self.stages} stages" if self.stages else "",
            f"dp {self.dp}" if self.dp > 1 else "",
            f"tp {self.tp}" if self.tp > 1 else "",
            f"vocabulary {self.vocabulary:,}" if self.vocabulary else "",
            f"{self.chunks} chunks" if self.chunks else "",
        ]
        return ", ".join([f"{self.schedule}, {self.micro_batches}", *filter(None, more)])


@dataclass(frozen=True)
class Case:
    """A job and its published throughputs.

    Attributes:
        name: Of the job.
        shape: Of the model and of a micro-batch.
        stages: Of the pipeline.
        rows: What was published; the first sets the scale.
        source: Where that stands.
        node: Its nodes of eight.
        network: Of each GPU.
        sharded: Whether copies share out parameters.
    """

    name: str
    shape: Shape
    stages: int
    rows: tuple[Row, ...]
    source: str
    node: str = NODE
    network: str = NETWORK
    sharded: bool = False

    def step_us(self, row: Row) -> float:
        """How long a step took."""
        return 1e6 * row.micro_batches * row.batch * self.shape.batch / self._gpus_of_a_copy(row) / row.samples_per_s

    def cluster(self, row: Row) -> str:
        """What it ran on, as tracekit names clusters."""
        nodes = row.dp * self._gpus_of_a_copy(row) // 8
        return f"{nodes}x{self.node}@{self.network}" if nodes > 1 else self.node

    def _gpus_of_a_copy(self, row: Row) -> int:
        return row.tp * (row.stages or self.stages)


def zero_bubble(
    name: str,
    shape: tuple[int, int, int, int],
    stages: int,
    micro_batches: tuple[int, int, int],
    **samples_per_s: tuple[float, float, float],
) -> Case:
    """A case of the zero-bubble paper, scaled by 1F1B with the most micro-batches.

    Args:
        name: Of the model.
        shape: Layers, width, heads, and samples of a micro-batch; sequences of 1,024.
        stages: Of the pipeline.
        micro_batches: Of the tables' columns.
        samples_per_s: By schedule; ``twice`` with micro-batches of twice the size, ``few`` with a quarter, a half and
            as many of them as stages (of 8) or stages (of 16).
    """
    schedules = {"plain": "1F1B", "interleaved": "interleaved", "split": "ZB-H1"}
    few = (stages // 4, stages // 2, stages)
    rows = [
        Row(schedules[key.split("_")[0]], count, rate, batch=2 if key.endswith("twice") else 1)
        for key, rates in samples_per_s.items()
        for count, rate in zip(few if key.endswith("few") else micro_batches, rates, strict=True)
    ]
    layers, width, heads, batch = shape
    most = next(row for row in rows if row.micro_batches == micro_batches[-1])
    others = (row for row in rows if row is not most)
    model = Shape(layers, width, heads, VOCABULARY_OF_ITS_PARAMETERS, batch, tokens=1024)
    return Case(name, model, stages, (most, *others), ZERO_BUBBLE)


def vocabularies(tokens: int, **mfu: float) -> Case:
    """A model of 4 billion parameters with several vocabularies, in thousands, and its percent of 312 TFLOP/s."""
    shape = Shape(32, 3072, 24, 32000, batch=1, tokens=tokens)
    rows = [
        Row("1F1B", 128, percent / 100 * 312e12 / _flops(replace(shape, vocabulary=words)), vocabulary=words)
        for words, percent in ((1000 * int(key[1:]), percent) for key, percent in mfu.items())
    ]
    return Case(f"4B, {tokens:,} tokens", shape, 8, tuple(rows), VOCABULARY)


def llama_65b(tp: int, *steps_s: tuple[int, int, float]) -> Case:
    """Llama 65B on 128 GPUs, 2,048 sequences a step.

    Args:
        tp: Ranks that share each layer.
        steps_s: Stages, samples of a micro-batch, seconds of a step.
    """
    rows = [
        Row("1F1B", 16 * tp * stages // batch, 16 / seconds, batch, stages, dp=128 // tp // stages, tp=tp)
        for stages, batch, seconds in steps_s
    ]
    return Case(f"Llama 65B, tp {tp}", Shape(80, 8192, 64, LLAMA_WORDS, batch=1, tokens=2048), 1, tuple(rows), LAYOUTS)


def _flops(shape: Shape) -> float:
    """Of a sample, as that repository's artifact/full_exp.sh counts them."""
    layer = 24 * shape.tokens * shape.width**2 + 4 * shape.tokens**2 * shape.width
    return 3 * (2 * shape.tokens * shape.width * shape.vocabulary + shape.layers * layer)


CASES = (
    zero_bubble(
        "1.5B",
        (22, 2304, 24, 6),
        8,
        (24, 32, 64),
        plain=(11.8, 12.5, 13.6),
        interleaved=(13.1, 13.4, 13.9),
        split=(12.9, 13.4, 14.2),
        plain_twice=(12.0, 12.6, 13.8),
        split_twice=(13.0, 13.6, 14.4),
        plain_few=(3.56, 5.74, 8.26),
        split_few=(4.25, 6.92, 9.90),
    ),
    zero_bubble(
        "6.2B",
        (30, 4096, 32, 3),
        8,
        (24, 32, 64),
        plain=(3.50, 3.70, 4.03),
        interleaved=(4.01, 4.08, 4.19),
        split=(3.88, 4.00, 4.20),
        plain_twice=(3.56, 3.76, 4.09),
        split_twice=(3.95, 4.05, 4.24),
        plain_few=(1.04, 1.69, 2.45),
        split_few=(1.33, 2.16, 3.07),
    ),
    zero_bubble(
        "14.6B",
        (46, 5120, 40, 1),
        16,
        (48, 64, 128),
        plain=(1.40, 1.49, 1.64),
        interleaved=(1.54, 1.59, 1.66),
        split=(1.61, 1.67, 1.76),
        plain_twice=(1.53, 1.62, 1.78),
        split_twice=(1.73, 1.79, 1.89),
        plain_few=(0.39, 0.65, 0.95),
        split_few=(0.52, 0.85, 1.25),
    ),
    zero_bubble(
        "28.3B",
        (62, 6144, 48, 1),
        32,
        (96, 128, 256),
        plain=(0.76, 0.80, 0.88),
        interleaved=(0.82, 0.85, 0.90),
        split=(0.87, 0.90, 0.96),
        plain_twice=(0.81, 0.85, 0.94),
        split_twice=(0.93, 0.96, 1.02),
    ),
    vocabularies(2048, v32=47.52, v64=40.82, v128=33.70, v256=17.29),
    vocabularies(4096, v32=52.82, v64=45.78, v128=37.13, v256=27.63),
    Case(
        "Llama 13B",
        Shape(40, 5120, 40, LLAMA_WORDS, batch=1, tokens=2048),
        2,
        (Row("1F1B", 128, 2048 / 32 / 58.62, dp=16), Row("1F1B", 64, 2048 / 64 / 31.06, dp=32)),
        LAYOUTS,
    ),
    llama_65b(2, (4, 1, 79.31), (8, 1, 79.54)),
    llama_65b(4, (4, 1, 86.61), (2, 1, 87.14), (8, 1, 92.61), (4, 2, 82.88), (8, 2, 86.55)),
    llama_65b(8, (4, 1, 111.83), (2, 1, 107.85), (8, 1, 121.93), (2, 2, 101.28), (4, 2, 103.17), (8, 2, 115.58)),
    Case(
        "Llama 405B",
        Shape(126, 16384, 128, 128256, batch=4, tokens=8192),
        8,
        # How many micro-batches isn't told; by default there are as many as chunks of layers on all stages.
        (
            Row("1F1B", 8, 100 / 8192, dp=8, tp=8),
            Row("interleaved", 8, 128 / 8192, dp=8, tp=8, chunks=2),
            Row("interleaved", 16, 128 / 8192, batch=0.5, dp=8, tp=8, chunks=2),
        ),
        TITAN,
        node="8xh100-sxm",
        network="roce400",
        sharded=True,
    ),
)


def main() -> None:
    """Prints a row for each published step but those that set the scale."""
    wanted = sys.argv[1:] or [case.name for case in CASES]
    heading = "| job | schedule, micro-batches | samples/s a GPU | predicted | error | 90 % interval | in it |"
    print_table(heading, (row for case in CASES if case.name in wanted for row in rows(case)))


def rows(case: Case) -> Iterator[str]:
    """A line for each step but the first, for which the stand-in's kernels are scaled."""
    first, *others = case.rows

    def first_us(trace: Trace) -> float:
        return predicted(trace, case, first).step.step_time_us

    trace, slowdown = as_long_as(case.step_us(first), case.shape, case.name, first_us, ROUNDS)
    yield f"| {case.name} | {first} | {first.samples_per_s:.4g} | sets the scale | | | |"
    for row in others:
        own = trace
        if row.vocabulary:
            own = scaled(replace(case.shape, vocabulary=row.vocabulary), case.name, slowdown)
        found = predicted(own, case, row)
        one_us = case.step_us(row) * row.samples_per_s
        rate, most, least = (one_us / time for time in (found.step.step_time_us, found.low_us, found.high_us))
        measured = row.samples_per_s
        error, inside = f"{100 * (rate / measured - 1):+.1f} %", "yes" if least <= measured <= most else "no"
        yield f"| {case.name} | {row} | {measured:.4g} | {rate:.4g} | {error} | {least:.4g}–{most:.4g} | {inside} |"


def predicted(trace: Trace, case: Case, row: Row) -> Prediction:
    """The stand-in in that pipeline."""
    change: dict[str, Any] = {"pp": row.stages or case.stages, "micro_batches": row.micro_batches}
    if row.schedule == "interleaved":
        change["pp_schedule"] = f"interleaved:{row.chunks or -(-case.shape.layers // case.stages)}"
    if row.schedule == "ZB-H1":
        change["pp_schedule"] = "zero-bubble"
    if row.batch != 1:
        change["batch"] = row.batch
    if row.dp > 1:
        change["dp"] = row.dp
    if row.tp > 1:
        change["tp"] = row.tp
    if case.sharded:
        change["fsdp"] = True
    cluster = case.cluster(row)
    return tk.predict(trace, cluster=cluster, calibration=False, **change)[cluster]


if __name__ == "__main__":
    main()
