"""The kernel table's checks, and which law a row goes to."""

from __future__ import annotations

import polars as pl
import pytest

from predictors.columns import build_law_inputs, prepare_kernels
from predictors.errors import KernelTableError
from predictors.kernels import KERNEL_COLUMNS, add_law, complete_columns


def law(**columns: object) -> str | None:
    return add_law(complete_columns(pl.DataFrame({name: [value] for name, value in columns.items()})))["law"][0]


def test_missing_columns_are_filled_in():
    table = complete_columns(pl.DataFrame({"family": ["gemm"], "dtype": ["bf16"], "heads": [8]}))
    assert table.columns == list(KERNEL_COLUMNS)
    row = table.row(0, named=True)
    assert (row["batch"], row["share"], row["kv_heads"], row["kv_dtype"], row["direction"]) == (
        1, 1, 8, "bf16", "forward",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pl.DataFrame({"dtype": ["bf16"]}), "no column 'family'"),
        (pl.DataFrame({"family": ["gem"]}), "unknown family: gem; known: gemm"),
        (pl.DataFrame({"family": [None]}, schema={"family": pl.String}), "unknown family: null"),
        (pl.DataFrame({"family": ["gemm"], "dtype": ["bfloat"]}), "unknown dtype: bfloat"),
        (pl.DataFrame({"family": ["gemm"], "m": ["many"]}), "wrong type"),
    ],
)
def test_a_table_nobody_understands_is_refused(frame: pl.DataFrame, says: str):
    with pytest.raises(KernelTableError, match=says):
        complete_columns(frame)


def test_numbers_that_cant_be_are_none():
    sizes_and_times = {"m": [float("nan"), float("inf")], "measured_us": [-1.0, 5.0]}
    table = complete_columns(pl.DataFrame({"family": ["gemm", "gemm"], **sizes_and_times}))
    assert table.select("m", "measured_us").rows() == [(None, None), (None, 5.0)]


def test_a_framework_nobody_knows_is_as_good_as_none():
    """Or its kernels would be held for measured ones, and their intervals come out too narrow."""
    named = pl.DataFrame({"family": ["gemm"] * 4, "framework": ["pytorch", "", "vLLM", "benchmark"]})
    assert complete_columns(named)["framework"].to_list() == [None, None, "vllm", "benchmark"]


def test_any_dtype_will_do_where_only_bytes_count():
    assert law(family="elementwise", dtype="int64", bytes=8) == "elementwise"


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("gemm half", {"family": "gemm", "dtype": "fp16", "m": 1, "n": 1, "k": 1}),
        ("gemm fp32", {"family": "gemm", "dtype": "fp64", "m": 1, "n": 1, "k": 1}),
        ("conv half", {"family": "conv", "dtype": "tf32", "m": 1, "n": 1, "k": 1}),
        ("grouped", {"family": "conv", "dtype": "fp16", "batch": 32, "m": 100, "n": 4, "k": 36}),
        ("conv half", {"family": "conv", "dtype": "tf32", "m": 1, "n": 1, "k": 1, "winograd": False}),
        ("conv fp32", {"family": "conv", "dtype": "fp32", "m": 9, "n": 9, "k": 9}),
        ("conv fp32", {"family": "conv", "dtype": "fp32", "m": 9, "n": 9, "k": 9, "winograd": True}),
        ("gemm fp32", {"family": "conv", "dtype": "fp32", "m": 9, "n": 9, "k": 9, "winograd": False}),
        ("elementwise", {"family": "conv", "dtype": "fp16", "batch": 32, "m": 100, "n": 1, "k": 9}),
        ("elementwise", {"family": "conv", "dtype": "fp16", "batch": 32, "m": 100, "n": 9, "k": 1}),
        ("elementwise", {"family": "conv", "dtype": "fp16", "batch": 32, "m": 1, "n": 9, "k": 100}),
        ("norm", {"family": "norm", "bytes": 1}),
        ("reduction", {"family": "norm", "bytes": 1, "part": "sums"}),
        ("reduction", {"family": "norm", "bytes": 1, "part": "fused"}),
        ("elementwise", {"family": "norm", "bytes": 1, "part": "scaling"}),
        ("memcpy", {"family": "memcpy", "bytes": 1}),
        (None, {"family": "collective", "bytes": 1}),
        (None, {"family": "softmax"}),
    ],
)
def test_a_row_goes_to_its_law(name: str | None, columns: dict[str, object]):
    assert law(**columns) == name


@pytest.mark.parametrize(
    ("name", "q_len", "kv_len", "causal", "direction"),
    [
        ("decode", 1, 100, True, "forward"),
        ("prefill", 1, 1, True, "forward"),
        ("prefill", 100, 100, True, "forward"),
        ("prefill", 100, 5000, True, "forward"),
        ("encoder", 100, 100, False, "forward"),
        ("sequence", 1, 100, True, "backward"),
    ],
)
def test_attention_streams_the_cache_or_tiles_the_queries(
    name: str, q_len: int, kv_len: int, causal: bool, direction: str
):
    shape = {"heads": 8, "head_dim": 64, "q_len": q_len, "kv_len": kv_len, "causal": causal}
    assert law(family="attention", dtype="bf16", direction=direction, **shape) == name


def test_attention_on_tensors_is_of_whole_sequences_but_for_a_few_queries():
    shape = {"family": "attention", "dtype": "bf16", "heads": 8, "head_dim": 64, "paged": False, "kv_len": 100}
    assert [law(**shape, q_len=n, causal=causal) for n in (1, 100) for causal in (False, True)] == [
        *("decode", "decode"),
        *("sequence", "sequence"),
    ]


def test_routing_is_as_skewed_as_its_power_law():
    names = ["balanced", "power_law_1.01", "power_law_1.2", "power_law", None]
    layer = {"family": "moe", "dtype": "bf16", "tokens": 8, "hidden": 64, "inter": 64, "topk": 1, "experts": 2}
    table = prepare_kernels(pl.DataFrame([layer | {"routing": name} for name in names]))
    assert build_law_inputs(table).numbers["skewed"].tolist() == [0.0, 1.01, 1.2, 1.0, 0.0]
