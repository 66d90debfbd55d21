"""Read operators of real jobs that the profiler measured (AMD's TraceLens), with the shapes that PyTorch records."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from predictors.training.traces import TRACE_FAMILIES

OperatorRow = dict[str, Any]
TensorShape = tuple[int, ...]

_DTYPES = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32"}
_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_COPY_PATTERN = r"Memcpy"
_POINTWISE_OPS = (
    "add", "add_", "sub", "mul", "div", "silu", "gelu", "pow", "tanh", "sigmoid", "exp", "neg", "abs", "rsqrt", "clamp",
    "clamp_min", "clamp_min_", "threshold_backward",
)  # fmt: skip
_TRACED_JOBS = ("sglang", "vllm", "xdit_flux", "xdit_sd", "resnet_act_checkpoint", "normalization")
"""Jobs whose traces `predictors.training.traces` holds kernel by kernel: only other families are taken from here."""
_STACK_KERNELS = {
    "fa2": "pytorch_flash::flash_fwd_kernel",
    "memeff": "fmha_cutlassF",
    "aotriton": "attn_fwd",
}
"""Whose kernels an attention op launched, by what their names contain; of a few tokens others take most of the time."""
_SCALAR_KERNELS = r"\belementwise_kernel(_manual_unroll)?<|(Load|Store)WithCast<|CatArrayBatchedCopy(_contig)?<"
_VECTORIZED_KERNELS = (
    r"\b(vectorized|unrolled)_(templated_)?elementwise_kernel<|CatArrayBatchedCopy_(aligned|vectorized)"
)
"""PyTorch's kernels that work out where each element lies or cast it, and those that move 16 bytes at once."""
_CONTIGUOUS_FAMILIES = ("elementwise", "norm", "reduction")
OPERATORS_TABLE = "ops.parquet"


def load(folder: Path) -> Iterator[pl.DataFrame]:
    """Read the operators whose shapes determine their work, in the columns of ``predictors.kernels``.

    Args:
        folder: Folder of the table of operators: ``op``, ``input_dims``, ``input_type``, ``input_strides``,
            ``concrete_inputs``, ``kernel_us``, ``kernel``, ``gpu``. Rows of vector families with strided inputs are
            left out, because the law does not count the cost of strided reads.
    """
    if (folder / OPERATORS_TABLE).exists():
        yield _read_operators(folder / OPERATORS_TABLE)


def _read_operators(path: Path) -> pl.DataFrame:
    ops = pl.read_parquet(path).filter(~pl.col("kernel").str.contains(_COPY_PATTERN), pl.col("kernel_us") > 0)
    recorded = ops.select("op", "input_dims", "input_type", "input_strides", "concrete_inputs")
    rows = [_build_row(**op) for op in recorded.iter_rows(named=True)]
    columns = pl.DataFrame([row or {} for row in rows], infer_schema_length=None)
    measured = ops.select(
        "gpu",
        latency_us="kernel_us",
        source=pl.lit("graph"),
        indexed=pl.when(pl.col("kernel").str.contains(_SCALAR_KERNELS))
        .then(pl.lit(value=True))
        .when(pl.col("kernel").str.contains(_VECTORIZED_KERNELS))
        .then(pl.lit(value=False)),
        framework=pl.coalesce(
            pl.when(pl.col("kernel").str.contains(name, literal=True)).then(pl.lit(stack))
            for stack, name in _STACK_KERNELS.items()
        ),
    )
    known = pl.concat([measured, columns], how="horizontal").with_columns(
        traced=ops["source"].str.contains_any(list(_TRACED_JOBS)) & columns["family"].is_in(TRACE_FAMILIES)
    )
    attends = (pl.col("family") == "attention").eq(pl.col("framework").is_not_null())
    return known.drop_nulls("family").filter(attends, ~pl.col("traced")).drop("traced")


def _build_row(
    op: str, input_dims: str, input_type: str, input_strides: str, concrete_inputs: str
) -> OperatorRow | None:
    formula = _FORMULAS.get(op.removeprefix("aten::")) if op.startswith("aten::") else None
    if formula is None:
        return None
    shapes = ast.literal_eval(input_dims)
    types = ast.literal_eval(input_type)
    dtype = next((_DTYPES[t] for t in types if t in _DTYPES), None)
    columns = formula(shapes, ast.literal_eval(concrete_inputs), _BYTES.get(dtype or "", 0)) if dtype else None
    if columns is None or (columns["family"] in _CONTIGUOUS_FAMILIES and not _is_contiguous(shapes, input_strides)):
        return None
    return {"dtype": dtype, **columns}


def _is_contiguous(shapes: list[TensorShape], input_strides: str) -> bool:
    """Whether every input lies row by row in memory."""
    return all(
        stride == math.prod(shape[axis + 1 :]) or shape[axis] == 1
        for shape, strides in zip(shapes, ast.literal_eval(input_strides), strict=False)
        for axis, stride in enumerate(strides)
    )


def _build_gemm_formula(a: int) -> Callable[[list[TensorShape], list[str], int], OperatorRow | None]:
    def columns(shapes: list[TensorShape], concrete: list[str], item: int) -> OperatorRow | None:
        left, right = shapes[a], shapes[a + 1]
        return {"family": "gemm", "batch": math.prod(left[:-2]), "m": left[-2], "n": right[-1], "k": left[-1]}

    return columns


def _describe_convolution(shapes: list[TensorShape], concrete: list[str], item: int) -> OperatorRow | None:
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


def _build_attention_formula(causal: int) -> Callable[[list[TensorShape], list[str], int], OperatorRow | None]:
    def columns(shapes: list[TensorShape], concrete: list[str], item: int) -> OperatorRow | None:
        q, k = shapes[0], shapes[1]
        return {"family": "attention", "batch": q[0], "heads": q[1], "kv_heads": k[1], "q_len": q[2], "kv_len": k[2],
                "head_dim": q[3], "causal": concrete[causal] == "True", "paged": False}  # fmt: skip

    return columns


def _build_traffic_formula(
    family: str, passes: float = 0.0
) -> Callable[[list[TensorShape], list[str], int], OperatorRow | None]:
    """Every input read once, and `passes` times the largest written."""

    def columns(shapes: list[TensorShape], concrete: list[str], item: int) -> OperatorRow | None:
        sizes = [math.prod(shape) for shape in _flatten_shapes(shapes)]
        if not sizes:
            return None
        largest = max(_flatten_shapes(shapes), key=math.prod)
        moved = item * (sum(sizes) + passes * max(sizes))
        return {"family": family, "rows": math.prod(largest[:-1]), "cols": largest[-1], "bytes": moved}

    return columns


def _describe_copy(shapes: list[TensorShape], concrete: list[str], item: int) -> OperatorRow | None:
    return _build_traffic_formula("copy")(shapes[:2], concrete, item)


def _describe_concatenation(shapes: list[TensorShape], concrete: list[str], item: int) -> OperatorRow | None:
    joined = sum(math.prod(shape) for shape in _flatten_shapes(shapes))
    return {"family": "copy", "rows": 1, "cols": joined, "bytes": 2 * item * joined} if joined else None


def _flatten_shapes(shapes: list[Any]) -> list[TensorShape]:
    """Shapes, those of tensor lists among them."""
    nested = [shape if shape and isinstance(shape[0], tuple) else (shape,) for shape in shapes if shape]
    return [shape for group in nested for shape in group if shape]


_FORMULAS: dict[str, Callable[[list[TensorShape], list[str], int], OperatorRow | None]] = {
    "mm": _build_gemm_formula(0),
    "bmm": _build_gemm_formula(0),
    "addmm": _build_gemm_formula(1),
    "convolution": _describe_convolution,
    "_scaled_dot_product_flash_attention": _build_attention_formula(4),
    "_scaled_dot_product_efficient_attention": _build_attention_formula(6),
    "layer_norm": _build_traffic_formula("norm", 1),
    "mean": _build_traffic_formula("reduction"),
    "sum": _build_traffic_formula("reduction"),
    "linalg_vector_norm": _build_traffic_formula("reduction"),
    "copy_": _describe_copy,
    "cat": _describe_concatenation,
    **dict.fromkeys(_POINTWISE_OPS, _build_traffic_formula("elementwise", 1)),
}
