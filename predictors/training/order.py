"""`python -m predictors.training.order [WEIGHTS]`: works out where weights contradict the order of the datasheets.

`python -m predictors.training fit` does so, too. Run it after a change of the data base of GPUs or of a law.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from predictors.arrays import Bools, Floats, Ints
from predictors.gpu_names import list_gpus
from predictors.gpu_order import ENGINE_LAWS, NEVER, GpuOrder, Limits, compare_known_gpus, save_gpu_order
from predictors.hardware import MMA_SUFFIX, Hardware
from predictors.kernel_identity import ATTENTION_STACKS, MOE_LIBRARIES, SERVING_FRAMEWORKS
from predictors.kernels import MEMORY_FAMILIES, complete_columns
from predictors.laws.law import LAWS
from predictors.model import KernelsOnGpus, evaluate_kernels
from predictors.training.traces import TRACES_TABLE, WORK_COLUMNS
from predictors.transfer import dominates
from predictors.weights_file import MAX_TWIN_SM_DIFFERENCE, SHIPPED_WEIGHTS, Weights, load_hardware, load_weights

KERNELS_PER_FAMILY = 1500
SEED = 2026
ROUNDS = 18
"""Four minutes; the last ones add next to nothing."""
LAW_CODES = {law: code for code, law in enumerate(LAWS)}
MARGIN = 1.5
"""How far a contradiction may reach beyond the shortest and the longest time that it was found at."""
TOLERANCE = 1 + 1e-6
"""Differences that come from rounding contradict nothing."""
FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp8_block", "nvfp4", "int8")
_ATTENTION_FRAMEWORKS = (None, None, *SERVING_FRAMEWORKS, *ATTENTION_STACKS)
_ENGINES = (None, None, *SERVING_FRAMEWORKS)


def derive_gpu_order(weights: Weights, rounds: int = ROUNDS) -> GpuOrder:
    """Return the order of the GPUs of the data base, and where the model contradicts it for some of many kernels.

    Args:
        weights: Fitted numbers.
        rounds: How often other kernels are drawn; each adds what those before it have missed.
    """
    order, draw = describe_known_gpus(weights), np.random.default_rng(SEED)
    order = find_contradictions(order, load_kernels_of_traces(), weights)
    for _ in range(rounds):
        order = find_contradictions(order, draw_kernels(draw, KERNELS_PER_FAMILY), weights)
    return order


def describe_known_gpus(weights: Weights) -> GpuOrder:
    """Return the order of the GPUs of the data base, without contradictions."""
    gpus = [load_hardware(slug) for slug in list_gpus()]
    measured = {
        law: sorted(
            gpu.slug
            for gpu in gpus
            if any(_are_twins(gpu, load_hardware(slug.removesuffix(MMA_SUFFIX))) for slug in fitted.well_measured)
        )
        for law, fitted in weights.laws.items()
    }
    return GpuOrder(
        better=compare_known_gpus(),
        delivering={gpu.slug: [o.slug for o in gpus if o is not gpu and dominates(o, gpu)] for gpu in gpus},
        architectures={gpu.slug: gpu.architecture for gpu in gpus},
        measured=measured,
    )


def _are_twins(one: Hardware, other: Hardware) -> bool:
    """Whether two GPUs are the same or twins (``Weights.find_twin``)."""
    return one.architecture == other.architecture and abs(one.sms / other.sms - 1) < MAX_TWIN_SM_DIFFERENCE


def find_contradictions(order: GpuOrder, kernels: pl.DataFrame, weights: Weights) -> GpuOrder:
    """Return an order with the fewest GPUs that limit each other for some kernels (see ``Peers.order_times``).

    Args:
        order: From ``describe_known_gpus``.
        kernels: Kernel table.
        weights: Fitted numbers.
    """
    runs = KernelsOnGpus(complete_columns(kernels))
    models = {slug: _evaluate_on_gpu(slug, runs, order, weights) for slug in order.better}
    raised, raised_by = {}, {}
    for slug, model in models.items():
        better = [models[peer] for peer in order.better[slug]]
        goal = np.fmax.reduce([model.time_us, *(peer.get_times_raising(model) for peer in better)])
        suffices = [peer.get_times_raising(model) >= goal / TOLERANCE for peer in better]
        known = order.raised_by.get(slug, {})
        raised_by[slug] = _cover(model, better, suffices, goal > model.time_us * TOLERANCE, known)
        raised[slug] = goal
    capped_by = {}
    for slug, model in models.items():
        bases = [models[base] for base, better in order.better.items() if slug in better]
        caps = [np.where(base.caps(model), raised[base.slug], np.inf) for base in bases]
        goal = np.fmin.reduce([raised[slug], *caps])
        suffices, known = [cap <= goal * TOLERANCE for cap in caps], order.capped_by.get(slug, {})
        capped_by[slug] = _cover(model, bases, suffices, goal < raised[slug] / TOLERANCE, known)
    return replace(order, raised_by=raised_by, capped_by=capped_by)


@dataclass(frozen=True)
class _ModelOnGpu:
    """The model's times of kernels on a GPU, their laws there, and whether these were measured there."""

    slug: str
    architecture: str
    time_us: Floats
    law: Ints
    kind: Ints
    kinds: tuple[str | None, ...]
    of_engine: Bools
    measured: Bools

    def get_times_raising(self, worse: _ModelOnGpu) -> Floats:
        """Times that a GPU that is no better takes at least; NaN where they don't count."""
        counts = self._are_comparable(worse) & (self.measured | ~worse.measured)
        return np.where(counts, self.time_us, np.nan)

    def caps(self, better: _ModelOnGpu) -> Bools:
        """Which times a better GPU takes at most."""
        return self._are_comparable(better) & self.measured & ~better.measured

    def _are_comparable(self, other: _ModelOnGpu) -> Bools:
        return np.asarray((self.law == other.law) & ((self.architecture == other.architecture) | ~self.of_engine))


def _evaluate_on_gpu(slug: str, runs: KernelsOnGpus, order: GpuOrder, weights: Weights) -> _ModelOnGpu:
    gpu = load_hardware(slug)
    kernels = runs.split_for_gpu(gpu)
    measured = kernels.law.map(lambda law: slug in order.measured.get(law or "", ()))
    of_engine = kernels.law.is_in(*ENGINE_LAWS)
    law = kernels.law.map(lambda law: LAW_CODES.get(law or "", -1))
    time_us = evaluate_kernels(kernels, gpu, weights).time_us
    kind = kernels.kind
    return _ModelOnGpu(slug, gpu.architecture, time_us, law, kind.codes, kind.categories, of_engine, measured)


def _cover(
    model: _ModelOnGpu, peers: Sequence[_ModelOnGpu], suffices: Sequence[Bools], open_rows: Bools, known: Limits
) -> Limits:
    """Return few GPUs that suffice for all open rows, and for which kinds and times of the model each is needed.

    Args:
        model: The model on the GPU that they limit.
        peers: The GPUs.
        suffices: For which rows each is enough.
        open_rows: Rows that need one.
        known: What other kernels need; the result has it, too.
    """
    found = {slug: {law: list(times) for law, times in ranges.items()} for slug, ranges in known.items()}
    for peer, does in zip(peers, suffices, strict=True):
        if peer.slug in known:
            least, most = np.array([known[peer.slug].get(kind or "", NEVER) for kind in model.kinds]).T[:, model.kind]
            open_rows = open_rows & ~(does & (model.time_us >= least) & (model.time_us <= most))
    rows = np.flatnonzero(open_rows)
    useful = np.stack([does[rows] for does in suffices]) if rows.size else np.empty((0, 0))
    while rows.size:
        best = int(useful.sum(axis=1).argmax())
        its, ranges = rows[useful[best]], found.setdefault(peers[best].slug, {})
        for code in np.unique(model.kind[its]).tolist():
            times, kind = model.time_us[its[model.kind[its] == code]], str(model.kinds[code])
            least, most = ranges.get(kind, NEVER)
            ranges[kind] = [min(_round_time(times.min() / MARGIN), least), max(_round_time(times.max() * MARGIN), most)]
        rows, useful = rows[~useful[best]], useful[:, ~useful[best]]
    return found


def _round_time(time_us: float) -> float:
    return float(f"{time_us:.3g}")


def load_kernels_of_traces() -> pl.DataFrame:
    """Load the kernels of public traces that the weights were fitted on, in half and single precision."""
    kernels = pl.read_parquet(TRACES_TABLE).select(WORK_COLUMNS).unique(maintain_order=True)
    both = pl.concat(kernels.with_columns(dtype=pl.lit(dtype)) for dtype in ("fp32", "bf16"))
    return both.unique(maintain_order=True)


def draw_kernels(draw: np.random.Generator, count: int) -> pl.DataFrame:
    """Draw kernels of every family in every format, from a few microseconds of latency to full GPUs.

    Args:
        draw: Source of chance.
        count: Kernels of each family.
    """
    drawn = (_draw_gemm, _draw_conv, _draw_attention, _draw_experts)
    rows = [{**one(draw), "dtype": _pick(draw, FORMATS)} for one in drawn for _ in range(count)]
    rows += [_draw_stream(draw, family) for family in (*MEMORY_FAMILIES, "memcpy") for _ in range(count // 2)]
    return pl.DataFrame(rows, infer_schema_length=None)


def _pick(draw: np.random.Generator, names: Sequence[Any]) -> Any:
    return names[int(draw.integers(len(names)))]


def _draw_sizes(draw: np.random.Generator, count: int, least: float, most: float) -> list[int]:
    """Sizes: mostly powers of two or multiples of one, as in most models."""
    sizes = np.exp(draw.uniform(np.log(least), np.log(most), count))
    kind = draw.random()
    if kind < 0.4:
        return [2 ** round(np.log2(size)) for size in sizes]
    steps = 2 ** draw.integers(0, 8, count) if kind < 0.8 else np.ones(count)
    return [max(int(size // step * step), 1) for size, step in zip(sizes, steps, strict=True)]


def _draw_gemm(draw: np.random.Generator) -> dict[str, object]:
    m, n, k = _draw_sizes(draw, 3, 1, 2**14)
    batch = _pick(draw, (1, 1, 1, 16, 128))
    return {
        "family": "gemm",
        "batch": batch,
        "m": m,
        "n": n,
        "k": k,
        "framework": _pick(draw, (*_ENGINES, "benchmark", "cublas")),
    }


def _draw_conv(draw: np.random.Generator) -> dict[str, object]:
    height, width, images = _draw_sizes(draw, 3, 1, 128)
    channels, n = _draw_sizes(draw, 2, 1, 1024)
    side = _pick(draw, (1, 3, 5))
    return {
        "family": "conv", "m": height * width * images, "n": n, "k": channels * side**2, "channels": channels,
        "height": height, "width": width, "winograd": bool(side == 3 and draw.random() < 0.7),
        "direction": _pick(draw, ("forward", "dgrad", "wgrad")), "tensor_core": _pick(draw, (None, None, False)),
    }  # fmt: skip


def _draw_attention(draw: np.random.Generator) -> dict[str, object]:
    q_len, kv_len = _draw_sizes(draw, 2, 16, 2**15)
    (batch,) = _draw_sizes(draw, 1, 1, 256)
    groups, kv_heads = _pick(draw, (1, 1, 4, 8)), _pick(draw, (1, 4, 8, 32))
    q_len = _pick(draw, (1, q_len, kv_len, kv_len))
    return {
        "family": "attention", "batch": batch, "heads": groups * kv_heads, "kv_heads": kv_heads, "q_len": q_len,
        "kv_len": max(q_len, kv_len), "head_dim": _pick(draw, (64, 128, 256, 72)), "causal": bool(draw.random() < 0.6),
        "paged": _pick(draw, (None, False, False, True)), "direction": _pick(draw, ("forward", "forward", "backward")),
        "window": _pick(draw, (0, 0, 0, 1024)), "framework": _pick(draw, _ATTENTION_FRAMEWORKS),
    }  # fmt: skip


def _draw_experts(draw: np.random.Generator) -> dict[str, object]:
    tokens, hidden, inter = (*_draw_sizes(draw, 1, 1, 2**15), *_draw_sizes(draw, 2, 256, 2**14))
    experts, topk = _pick(draw, ((8, 2), (64, 6), (128, 8), (256, 8), (16, 1)))
    return {
        "family": "moe", "tokens": tokens, "hidden": hidden, "inter": inter, "topk": topk, "experts": experts,
        "tp": _pick(draw, (1, 1, 4)), "ep": _pick(draw, (1, 1, 8)), "routing": _pick(draw, (None, "power_law_1.2")),
        "framework": _pick(draw, (*_ENGINES, *MOE_LIBRARIES)),
    }  # fmt: skip


def _draw_stream(draw: np.random.Generator, family: str) -> dict[str, object]:
    (cols,), size, dtype = _draw_sizes(draw, 1, 1, 2**16), 2 ** draw.uniform(4, 32), _pick(draw, ("fp32", "bf16"))
    blocks = {"blocks": int(2 ** draw.uniform(0, 18)), "threads_per_block": _pick(draw, (64, 128, 256, 512, 1024))}
    parts = {"norm": (None, None, "sums", "scaling", "rows", "squares", "fused"), "reduction": (None, "tree")}
    return {
        "family": family, "dtype": dtype, "bytes": size, "rows": max(int(size / 8) // cols, 1), "cols": cols,
        "direction": _pick(draw, ("forward", "forward", "backward")), "indexed": _pick(draw, (None, False, True)),
        "across": _pick(draw, (None, False, True)), "part": _pick(draw, parts.get(family, (None,))),
        "copy_kind": _pick(draw, (None, "HtoD", "DtoH", "DtoD", "PtoP")) if family == "memcpy" else None,
        **(blocks if draw.random() < 0.5 else {}),
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED_WEIGHTS
    save_gpu_order(derive_gpu_order(load_weights(folder)), folder)


if __name__ == "__main__":
    main()
