"""Tensor parallelism against published decoding rates and Megatron-LM's published training steps.

No trace of these jobs is public. For decoding a trace is made by hand: the GEMMs, attention, norms and activations of
one token through a Llama, which read their weights at one rate, so that the fewest GPUs give the published rate. For
training a transformer of the model's size is built, its kernels scaled once so that the smallest model has its
published time on one GPU; activations are recomputed. What is tested is what splitting a layer costs, and replicas.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import tracekit as tk
from sample_traces.synthetic.models import Shape
from tests.validation.published_jobs.scaled_transformer import build_scaled_trace, build_trace_of_length
from tests.validation.study import Result, format_results, format_table, format_yes, list_sources, read_published
from tracekit.prediction.model import Prediction
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

INPUTS = ()
DECODING_NODE = "8xa100-sxm-80gb"
DECODING_ROUNDS = 3
START_GBPS = 1500.0
SMALL_KERNEL_US, CACHED_TOKENS = 2.5, 128
"""Time of a kernel that reads no weights, and the length of the cache, whose bytes are few."""

TRAINING_GPU, TRAINING_NODE, TRAINING_NETWORK = "a100-sxm-40gb", "8xa100-sxm-40gb", "hdr200"
"""Eight 200 Gbit/s adapters a node."""
TRAINING_ROUNDS = 2
BATCH, TOKENS, VOCABULARY = 16, 1024, 51200
"""Of each replica."""


@dataclass(frozen=True)
class LlamaJob:
    """A model, and its published tokens a second by number of GPUs."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tokens_per_s: dict[int, float]

    @property
    def head_dim(self) -> int:
        """Return the elements of a head."""
        return self.hidden // self.heads


def run() -> str:
    """Return a table of decoding and one of training."""
    decoding = ("model", "GPUs", "tokens/s", "predicted", "error", "all-reduces", "in interval")
    training = ("model", "layout", "measured", "predicted", "error", "exposed communication", "in interval")
    results: list[Result] = []
    return "\n".join(
        (
            "# Tensor parallelism against published jobs\n",
            "## Decoding in CUDA graphs, batch 1\n",
            format_table(decoding, (row for job in read_llama_jobs() for row in predict_decoding(job, results))),
            "## Megatron-LM's training, alone and in 128 replicas\n",
            format_table(training, predict_training(results)),
            "## Summary\n",
            format_results(results),
            list_sources("tensor_parallel_decoding", "megatron_steps"),
        )
    )


def read_llama_jobs() -> Iterator[LlamaJob]:
    """Yield the published models."""
    for rows in read_published("tensor_parallel_decoding").partition_by("model", maintain_order=True):
        rates = dict(rows.select("gpus", "tokens_per_s").iter_rows())
        first = rows.drop("gpus", "tokens_per_s", "source").row(0, named=True)
        yield LlamaJob(name=first.pop("model"), **first, tokens_per_s=rates)


def predict_decoding(job: LlamaJob, results: list[Result]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each number of GPUs but the fewest, which set the rate of reading weights.

    Args:
        job: Published rates of a model.
        results: Gets the result of each row.
    """
    trace = build_trace_at_rate(job)
    fewest, *others = job.tokens_per_s
    for gpus in others:
        found, measured = predict_token(trace, gpus), job.tokens_per_s[gpus]
        rate, high, low = (1e6 / us for us in (found.step.step_time_us, found.low_us, found.high_us))
        result = Result("decoding", 100 * (rate / measured - 1), low <= measured <= high)
        results.append(result)
        yield (
            job.name,
            f"{fewest} → {gpus}",
            f"{measured:.0f}",
            f"{rate:.0f}",
            f"{result.error_pct:+.1f} %",
            f"{found.inserted_us['collective'] / 1e3:.2f} ms",
            format_yes(result.is_inside),
        )


def build_trace_at_rate(job: LlamaJob) -> Trace:
    """Build the trace of one token at the published rate of the fewest GPUs."""
    gbps, fewest = START_GBPS, min(job.tokens_per_s)
    for _ in range(DECODING_ROUNDS):
        trace = build_token(job, gbps)
        gbps *= predict_token(trace, fewest).step.step_time_us * job.tokens_per_s[fewest] / 1e6
    return trace


def build_token(job: LlamaJob, gbps: float) -> Trace:
    """Build the trace of one token on one GPU that reads weights at some GB/s."""
    builder, now = TraceBuilder(), 0.0

    def run_op(op: str, dims: list[list[int]], kernel: str, dur: float) -> None:
        nonlocal now
        builder.op(op, now, dur, dims=dims, types=["c10::BFloat16"] * len(dims))
        builder.kernel(kernel, now + 1, dur, launch=now + 0.1, launch_dur=0.5)
        now += dur + 0.5

    def multiply(columns: int, depth: int) -> None:
        run_op("aten::mm", [[1, depth], [depth, columns]], "gemv2T_kernel_val<bf16>", 2e-3 * columns * depth / gbps)

    hidden, query = [1, job.hidden], [1, job.heads, 1, job.head_dim]
    keys = [1, job.kv_heads, CACHED_TOKENS, job.head_dim]
    for _ in range(job.layers):
        run_op("aten::native_layer_norm", [hidden], "vectorized_layer_norm_kernel", SMALL_KERNEL_US)
        multiply(job.hidden + 2 * job.kv_heads * job.head_dim, job.hidden)
        run_op("aten::mul", [query], "vectorized_elementwise_kernel", SMALL_KERNEL_US)
        attention = "aten::_scaled_dot_product_flash_attention"
        run_op(attention, [query, keys, keys], "flash_fwd_kernel", 2 * SMALL_KERNEL_US)
        multiply(job.hidden, job.hidden)
        run_op("aten::native_layer_norm", [hidden], "vectorized_layer_norm_kernel", SMALL_KERNEL_US)
        multiply(job.intermediate, job.hidden)
        multiply(job.intermediate, job.hidden)
        gates = [[1, job.intermediate], [1, job.intermediate]]
        run_op("aten::mul", gates, "vectorized_elementwise_kernel", SMALL_KERNEL_US)
        multiply(job.hidden, job.intermediate)
    multiply(job.vocabulary, job.hidden)
    return builder.load()


def predict_token(trace: Trace, gpus: int) -> Prediction:
    """Predict the token on a number of GPUs, from CUDA graphs."""
    predictions = tk.predict(trace, cluster=DECODING_NODE, tp=gpus, what_if=["cuda-graph()"], no_calibration=True)
    return predictions[DECODING_NODE]


def predict_training(results: list[Result]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each model and layout but the first, which sets the scale.

    Args:
        results: Gets the result of each row.
    """
    published = read_published("megatron_steps")
    first, *others = published.iter_rows(named=True)

    def build_shape(model: dict[str, object]) -> Shape:
        layers, width, heads = (int(str(model[size])) for size in ("layers", "width", "heads"))
        return Shape(layers, width, heads, VOCABULARY, BATCH, TOKENS)

    slowdown = build_trace_of_length(
        1e3 * first["step_ms"], build_shape(first), first["model"], predict_alone_us, TRAINING_ROUNDS, recomputes=True
    )[1]
    traces = {
        model["model"]: build_scaled_trace(build_shape(model), model["model"], slowdown, recomputes=True)
        for model in published.unique("model", maintain_order=True).iter_rows(named=True)
    }
    for row in others:
        found = predict_layout(traces[row["model"]], row["tp"], row["dp"])
        measured_ms = row["step_ms"]
        step_ms, low_ms, high_ms = (us / 1e3 for us in (found.step.step_time_us, found.low_us, found.high_us))
        group = "training" if row["dp"] == 1 else "training, 128 replicas"
        result = Result(group, 100 * (step_ms / measured_ms - 1), low_ms <= measured_ms <= high_ms)
        results.append(result)
        yield (
            row["model"],
            f"tp {row['tp']} x dp {row['dp']}",
            f"{measured_ms:,.0f} ms",
            f"{step_ms:,.0f} ms",
            f"{result.error_pct:+.1f} %",
            f"{found.step.exposed_comm_us / 1e3:.0f} ms",
            format_yes(result.is_inside),
        )


def predict_alone_us(trace: Trace) -> float:
    """Predict a step on one GPU."""
    return predict_layout(trace, 1, 1).step.step_time_us


def predict_layout(trace: Trace, tp: int, dp: int) -> Prediction:
    """Predict a training step in a layout."""
    nodes = max(tp * dp // 8, 1)
    cluster = f"{nodes}x{TRAINING_NODE}@{TRAINING_NETWORK}" if nodes > 1 else TRAINING_NODE
    return tk.predict(trace, cluster=cluster, tp=tp, dp=dp, source_gpu=TRAINING_GPU, no_calibration=True)[cluster]
