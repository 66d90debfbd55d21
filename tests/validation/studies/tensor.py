"""Holds predictions of tensor parallelism against published decoding rates of one model on several numbers of GPUs.

python -m tests.validation.studies.tensor

No trace of these jobs is public, so a trace made by hand stands in: the products, attention, norms and activations of
one token through a Llama, which read their weights at one rate, so that the fewest GPUs give the published rate.
What is tested is what tracekit makes of the layers' parts, and the all-reduces it puts in. Source: README of
pytorch-labs/gpt-fast (A100 80 GB, 330 W; CUDA graphs, batch 1, prompts of five tokens).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import tracekit as tk
from tests.validation.tables import print_table
from tracekit.prediction.model import Prediction
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

NODE = "8xa100-sxm-80gb"
SMALL_US, TOKENS = 2.5, 128
"""What a kernel takes that reads no weights; and the cache, whose bytes are few."""
ROUNDS = 3


@dataclass(frozen=True)
class Llama:
    """A model, and its published tokens a second by number of GPUs."""

    name: str
    layers: int
    hidden: int
    wide: int
    heads: int
    kv_heads: int
    vocabulary: int
    tokens_per_s: dict[int, float]

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Columns and depth of a layer's products."""
        fused = self.hidden + 2 * self.kv_heads * self.head_dim
        return {
            "qkv": (fused, self.hidden),
            "out": (self.hidden, self.hidden),
            "gate": (self.wide, self.hidden),
            "up": (self.wide, self.hidden),
            "down": (self.hidden, self.wide),
        }


MODELS = (
    Llama("Llama 2 7B", 32, 4096, 11008, 32, 32, 32000, {1: 104.9, 2: 168.84, 4: 254.02, 8: 328.43}),
    Llama("Llama 3.1 8B", 32, 4096, 14336, 32, 8, 128256, {1: 93.83, 2: 149.10, 4: 217.21, 8: 276.01}),
    Llama("Llama 2 70B", 80, 8192, 28672, 64, 8, 32000, {2: 21.32, 4: 38.01, 8: 62.50}),
    Llama("Llama 3.1 70B", 80, 8192, 28672, 64, 8, 128256, {4: 37.45, 8: 58.78}),
)


def main() -> None:
    """Prints a row for each model and number of GPUs."""
    heading = "| model | GPUs | tokens/s | predicted | error | all-reduces | in interval |"
    print_table(heading, (row for model in MODELS for row in rows(model)))


def rows(model: Llama) -> Iterator[str]:
    """A line for each number of GPUs but the fewest, which set the scale."""
    trace = as_fast_as(model)
    fewest, *others = model.tokens_per_s
    for gpus in others:
        measured = model.tokens_per_s[gpus]
        found = predicted(trace, gpus)
        rate, most, least = (1e6 / time for time in (found.step.step_time_us, found.low_us, found.high_us))
        yield (
            f"| {model.name} | {fewest} → {gpus} | {measured:.0f} | {rate:.0f} | {100 * (rate / measured - 1):+.1f} % "
            f"| {found.inserted_us['collective'] / 1e3:.2f} ms | {'yes' if least <= measured <= most else 'no'} |"
        )


def as_fast_as(model: Llama) -> Trace:
    """One token through a model, at the published rate of the fewest GPUs."""
    gbps, fewest = 1500.0, min(model.tokens_per_s)
    for _ in range(ROUNDS):
        trace = one_token(model, gbps)
        gbps *= predicted(trace, fewest).step.step_time_us * model.tokens_per_s[fewest] / 1e6
    return trace


def one_token(model: Llama, gbps: float) -> Trace:
    """The kernels of one token, as one GPU runs them that reads weights at so many GB/s."""
    builder, now = TraceBuilder(), 0.0

    def runs(op: str, dims: list[list[int]], kernel: str, dur: float) -> None:
        nonlocal now
        builder.op(op, now, dur, dims=dims, types=["c10::BFloat16"] * len(dims))
        builder.kernel(kernel, now + 1, dur, launch=now + 0.1, launch_dur=0.5)
        now += dur + 0.5

    def multiplies(columns: int, depth: int) -> None:
        runs("aten::mm", [[1, depth], [depth, columns]], "gemv2T_kernel_val<bf16>", 2e-3 * columns * depth / gbps)

    hidden, query = [1, model.hidden], [1, model.heads, 1, model.head_dim]
    keys = [1, model.kv_heads, TOKENS, model.head_dim]
    for _ in range(model.layers):
        runs("aten::native_layer_norm", [hidden], "vectorized_layer_norm_kernel", SMALL_US)
        multiplies(*model.products["qkv"])
        runs("aten::mul", [query], "vectorized_elementwise_kernel", SMALL_US)
        runs("aten::_scaled_dot_product_flash_attention", [query, keys, keys], "flash_fwd_kernel", 2 * SMALL_US)
        multiplies(*model.products["out"])
        runs("aten::native_layer_norm", [hidden], "vectorized_layer_norm_kernel", SMALL_US)
        multiplies(*model.products["gate"])
        multiplies(*model.products["up"])
        runs("aten::mul", [[1, model.wide], [1, model.wide]], "vectorized_elementwise_kernel", SMALL_US)
        multiplies(*model.products["down"])
    multiplies(model.vocabulary, model.hidden)
    return builder.load()


def predicted(trace: Trace, gpus: int) -> Prediction:
    """It on so many GPUs, from CUDA graphs."""
    return tk.predict(trace, cluster=NODE, tp=gpus, what_if=["cuda-graph()"], calibration=False)[NODE]


if __name__ == "__main__":
    main()
