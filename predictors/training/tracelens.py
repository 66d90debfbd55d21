"""Operators of real jobs as the profiler measured them (AMD's TraceLens): shapes as PyTorch records them."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from predictors.training.traces import FAMILIES

Row = dict[str, Any]
Shape = tuple[int, ...]

_DTYPES = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32"}
_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_NOT_A_KERNEL = r"Memcpy"
_POINTWISE = (
    "add", "add_", "sub", "mul", "div", "silu", "gelu", "pow", "tanh", "sigmoid", "exp", "neg", "abs", "rsqrt", "clamp",
    "clamp_min", "clamp_min_", "threshold_backward",
)  # fmt: skip
_TRACED = ("sglang", "vllm", "xdit_flux", "xdit_sd", "resnet_act_checkpoint", "normalization")
"""Jobs whose traces `predictors.training.traces` holds kernel by kernel: only other families are taken from here."""
_STACKS = {
    "fa2": "pytorch_flash::flash_fwd_kernel",
    "memeff": "fmha_cutlassF",
    "aotriton": "attn_fwd",
}
"""Whose kernels an attention op launched, by what their names contain; of a few tokens others take most of the time."""
_ONE_BY_ONE = r"\belementwise_kernel(_manual_unroll)?<|(Load|Store)WithCast<|CatArrayBatchedCopy(_contig)?<"
_SEVERAL_AT_ONCE = r"\b(vectorized|unrolled)_(templated_)?elementwise_kernel<|CatArrayBatchedCopy_(aligned|vectorized)"
"""PyTorch's kernels that work out where each element lies or cast it, and those that move 16 bytes at once."""
_CONTIGUOUS_ONLY = ("elementwise", "norm", "reduction")


def load(path: Path) -> pl.DataFrame:
    """The operators whose work their shapes tell, in the columns of `predictors.kernels`.

    Args:
        path: the table of operators: `op`, `input_dims`, `input_type`, `input_strides`, `concrete_inputs`,
            `kernel_us`, `kernel`, `gpu`. Strided reads cost what the law doesn't count: rows of vector families that
            have them are left out.
    """
    ops = pl.read_parquet(path).filter(~pl.col("kernel").str.contains(_NOT_A_KERNEL), pl.col("kernel_us") > 0)
    recorded = ops.select("op", "input_dims", "input_type", "input_strides", "concrete_inputs")
    rows = [_row(**op) for op in recorded.iter_rows(named=True)]
    columns = pl.DataFrame([row or {} for row in rows], infer_schema_length=None)
    measured = ops.select(
        "gpu",
        latency_us="kernel_us",
        source=pl.lit("graph"),
        indexed=pl.when(pl.col("kernel").str.contains(_ONE_BY_ONE))
        .then(pl.lit(value=True))
        .when(pl.col("kernel").str.contains(_SEVERAL_AT_ONCE))
        .then(pl.lit(value=False)),
        framework=pl.coalesce(
            pl.when(pl.col("kernel").str.contains(name, literal=True)).then(pl.lit(stack))
            for stack, name in _STACKS.items()
        ),
    )
    known = pl.concat([measured, columns], how="horizontal").with_columns(
        traced=ops["source"].str.contains_any(list(_TRACED)) & columns["family"].is_in(FAMILIES)
    )
    attends = (pl.col("family") == "attention").eq(pl.col("framework").is_not_null())
    return known.drop_nulls("family").filter(attends, ~pl.col("traced")).drop("traced")


def _row(op: str, input_dims: str, input_type: str, input_strides: str, concrete_inputs: str) -> Row | None:
    formula = _FORMULAS.get(op.removeprefix("aten::")) if op.startswith("aten::") else None
    if formula is None:
        return None
    shapes = ast.literal_eval(input_dims)
    types = ast.literal_eval(input_type)
    dtype = next((_DTYPES[t] for t in types if t in _DTYPES), None)
    columns = formula(shapes, ast.literal_eval(concrete_inputs), _BYTES.get(dtype or "", 0)) if dtype else None
    if columns is None or (columns["family"] in _CONTIGUOUS_ONLY and not _contiguous(shapes, input_strides)):
        return None
    return {"dtype": dtype, **columns}


def _contiguous(shapes: list[Shape], input_strides: str) -> bool:
    """Whether every input lies row by row in memory."""
    return all(
        stride == math.prod(shape[axis + 1 :]) or shape[axis] == 1
        for shape, strides in zip(shapes, ast.literal_eval(input_strides), strict=False)
        for axis, stride in enumerate(strides)
    )


def _product(a: int) -> Callable[[list[Shape], list[str], int], Row | None]:
    def columns(shapes: list[Shape], concrete: list[str], item: int) -> Row | None:
        left, right = shapes[a], shapes[a + 1]
        return {"family": "gemm", "batch": math.prod(left[:-2]), "m": left[-2], "n": right[-1], "k": left[-1]}

    return columns


def _convolution(shapes: list[Shape], concrete: list[str], item: int) -> Row | None:
    x, w = shapes[0], shapes[1]
    stride, padding, dilation = (ast.literal_eval(concrete[i]) for i in (3, 4, 5))
    if concrete[6] == "True" or len(x) != len(w):
        return None
    out = [
        (size + 2 * padding[i] - dilation[i] * (kernel - 1) - 1) // stride[i] + 1
        for i, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True))
    ]
    groups = x[1] // w[1]
    pixels = x[0] * math.prod(out)
    moved = item * (math.prod(x) + math.prod(w) + pixels * w[0])
    return {"family": "conv", "direction": "forward", "batch": groups, "m": pixels, "n": w[0] // groups,
            "k": math.prod(w[1:]), "channels": w[1], "height": out[0], "width": out[-1], "bytes": moved}  # fmt: skip


def _attention(causal: int) -> Callable[[list[Shape], list[str], int], Row | None]:
    def columns(shapes: list[Shape], concrete: list[str], item: int) -> Row | None:
        q, k = shapes[0], shapes[1]
        return {"family": "attention", "batch": q[0], "heads": q[1], "kv_heads": k[1], "q_len": q[2], "kv_len": k[2],
                "head_dim": q[3], "causal": concrete[causal] == "True", "paged": False}  # fmt: skip

    return columns


def _moved(family: str, passes: float = 0.0) -> Callable[[list[Shape], list[str], int], Row | None]:
    """Every input read once, and `passes` times the largest written."""

    def columns(shapes: list[Shape], concrete: list[str], item: int) -> Row | None:
        sizes = [math.prod(shape) for shape in _flat(shapes)]
        if not sizes:
            return None
        largest = max(_flat(shapes), key=math.prod)
        moved = item * (sum(sizes) + passes * max(sizes))
        return {"family": family, "rows": math.prod(largest[:-1]), "cols": largest[-1], "bytes": moved}

    return columns


def _copy(shapes: list[Shape], concrete: list[str], item: int) -> Row | None:
    return _moved("copy")(shapes[:2], concrete, item)


def _join(shapes: list[Shape], concrete: list[str], item: int) -> Row | None:
    joined = sum(math.prod(shape) for shape in _flat(shapes))
    return {"family": "copy", "rows": 1, "cols": joined, "bytes": 2 * item * joined} if joined else None


def _flat(shapes: list[Any]) -> list[Shape]:
    """Shapes, those of tensor lists among them."""
    nested = [shape if shape and isinstance(shape[0], tuple) else (shape,) for shape in shapes if shape]
    return [shape for group in nested for shape in group if shape]


_FORMULAS: dict[str, Callable[[list[Shape], list[str], int], Row | None]] = {
    "mm": _product(0),
    "bmm": _product(0),
    "addmm": _product(1),
    "convolution": _convolution,
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_efficient_attention": _attention(6),
    "layer_norm": _moved("norm", 1),
    "mean": _moved("reduction"),
    "sum": _moved("reduction"),
    "linalg_vector_norm": _moved("reduction"),
    "copy_": _copy,
    "cat": _join,
    **dict.fromkeys(_POINTWISE, _moved("elementwise", 1)),
}
