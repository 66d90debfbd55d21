"""Kernels belong to what launched them, collectives have their names, comparisons and casts count both sides."""

from typing import Any

import polars as pl
import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.parameters import fill_stored_weights

ALLOCATING_OPS = ("aten::empty", "aten::empty_strided", "aten::result_type", "aten::resize_", "aten::as_strided")


def table(builder: TraceBuilder) -> dict[str, list[Any]]:
    return build_kernel_table(builder.load().rank()).to_dict(as_series=False)


@pytest.mark.parametrize("inner", ALLOCATING_OPS)
@pytest.mark.parametrize("call_us", [20, 30], ids=["as the inner op ends", "after it"])
def test_a_kernel_belongs_to_the_op_that_launches_it_not_to_one_that_has_ended(inner: str, call_us: float) -> None:
    builder = TraceBuilder().op("aten::add", 0, 60).op(inner, 10, 10)
    assert table(builder.kernel("k", 100, 5, launch=call_us))["op"] == ["aten::add"]


@pytest.mark.parametrize(
    ("recorded", "kernel", "name"),
    [
        ("allreduce", "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("all_to_allv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_all"),
        ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
    ],
)
def test_a_collectives_op_is_called_what_it_does(recorded: str, kernel: str, name: str) -> None:
    sizes = {"In msg nelems": 8, "Out msg nelems": 8, "Group size": 2}
    message: dict[str, Any] = {"Collective name": recorded, **sizes, "dtype": "Float"}
    builder = TraceBuilder().op("record_param_comms", 0, 20, **message).kernel(kernel, 50, 5, launch=10)
    found = table(builder)
    assert (found["op"], found["collective"]) == ([f"nccl:{name}"], [name])


@pytest.mark.parametrize("mark", ["All2All_Pooled_Req", "## alltoall_fwd_single ##"])
def test_sends_and_receives_that_a_program_calls_an_all_to_all_are_one(mark: str) -> None:
    builder = TraceBuilder().op("record_param_comms", 5, 20)
    builder = builder.annotation(mark, 0, 40) if mark.startswith("#") else builder.op(mark, 0, 40)
    found = table(builder.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 50, 5, launch=10))
    assert found["collective"] == ["all_to_all"]


@pytest.mark.parametrize(
    ("op", "types", "bytes_"),
    [
        # Two inputs of 1000 elements read, one byte written for each.
        ("aten::eq", ["float", "float"], 1000 * (4 + 4 + 1)),
        ("aten::gt", ["c10::BFloat16", "c10::BFloat16"], 1000 * (2 + 2 + 1)),
        ("aten::logical_and", ["bool", "bool"], 1000 * 3),
        # A cast reads one type and writes the other.
        ("aten::copy_", ["float", "c10::BFloat16"], 1000 * (4 + 2)),
        ("aten::copy_", ["c10::BFloat16", "float"], 1000 * (2 + 4)),
    ],
)
def test_comparisons_write_bools_and_casts_count_both_sides(op: str, types: list[str], bytes_: int) -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::f>(int)"
    builder = TraceBuilder().op(op, 0, 20, dims=[[1000], [1000]], types=types).kernel(name, 50, 5, launch=10)
    assert table(builder)["bytes"] == [bytes_]


BF16_ID = 1125899906909960
MARLIN = "void marlin::Marlin<{0}l, {1}l, {0}l, {2}l, 128, 1, 4, 8, true, 4, 8, false>(int4 const*)"
"""vLLM's Marlin: ids of the types of input, weights, output and scales (``ScalarType::id``)."""


@pytest.mark.parametrize(
    ("name", "weights", "stored"),
    [
        # 4-bit weights that are computed with in bf16: one byte of scale per 32 or 16, or two per 128.
        (MARLIN.format(BF16_ID, 1125899907892224, BF16_ID), "int4", 0.5 + 2 / 128),
        (MARLIN.format(BF16_ID, 562949953487106, 2814749767106568), "mxfp4", 0.5 + 1 / 32),
        (MARLIN.format(BF16_ID, 562949953487106, 2814749767172868), "nvfp4", 0.5 + 1 / 16),
        (MARLIN.format(BF16_ID, 1125899923621888, BF16_ID), "int8", 1),
        ("_gemm_a16wfp4_kernel_bf16", "mxfp4", 0.5 + 1 / 32),
    ],
)
def test_weights_are_read_as_they_are_stored(name: str, weights: str, stored: float) -> None:
    m, n, k = 16, 512, 1024
    builder = TraceBuilder().op("aten::mm", 0, 20, dims=[[m, k], [k, n]], types=["c10::BFloat16"] * 2)
    found = table(builder.kernel(name, 50, 5, launch=10))
    assert (found["dtype"], found["weight_dtype"]) == (["bf16"], [weights])
    assert found["bytes"] == [round(n * k * stored) + (m * k + m * n) * 2]


def test_impossible_sizes_of_stored_weights_have_no_bytes() -> None:
    sizes = {"family": "gemm", "dtype": "bf16", "weight_dtype": "int4", "batch": 1, **dict.fromkeys("mnk", 1 << 40)}
    row = pl.DataFrame([{**sizes, "bytes": None}], schema_overrides={"bytes": pl.Int64})
    assert fill_stored_weights(row)["bytes"].to_list() == [None]


GENERIC_KERNEL = "ncclDevKernel_Generic_2(ncclDevKernelArgsStorage<4096ul>)"


def describe_generic(op: str, concrete: list[str] | None = None) -> tuple[str | None, int | None]:
    """Kind and bytes of a kernel that doesn't tell its collective, below an op that was given 8 KiB in bf16."""
    dims, types = [[64, 64], []], ["c10::BFloat16", ""]
    builder = TraceBuilder().op(op, 0, 40, dims=dims, types=types, concrete=concrete)
    row = build_kernel_table(builder.kernel(GENERIC_KERNEL, 50, 300, launch=10).load().rank()).row(0, named=True)
    return row["collective"], row["bytes"]


@pytest.mark.parametrize(
    ("op", "told"),
    [
        ("vllm::all_reduce", ("all_reduce", 8192)),
        ("sglang::inplace_all_reduce", ("all_reduce", 8192)),
        ("nccl:all_reduce", ("all_reduce", 8192)),
        ("c10d::allreduce_", ("all_reduce", 8192)),
        ("vllm::reduce_scatter", ("reduce_scatter", 8192)),
        ("sglang::reg_all_gather_into_tensor", ("all_gather", None)),
        ("torchrec::all_to_all_single", ("all_to_all", 8192)),
        ("nccl:broadcast", ("broadcast", 8192)),
        ("c10d::reduce_", ("reduce", 8192)),
        ("c10d::send", ("send_recv", 8192)),
        ("aten::broadcast_to", (None, None)),
        ("mylib::reduce_noise", (None, None)),
    ],
)
def test_the_op_tells_the_collective_of_a_kernel_that_does_not(op: str, told: tuple[str | None, int | None]) -> None:
    assert describe_generic(op) == told


@pytest.mark.parametrize(
    ("name", "kind"), [("allreduce", "all_reduce"), ("_allgather_base", "all_gather"), ("all_to_allv", "all_to_all")]
)
def test_a_recorded_call_names_its_collective_among_its_values(name: str, kind: str) -> None:
    assert describe_generic("record_param_comms", ["", "('0', '')", "0", name, "8"])[0] == kind


def test_a_mark_around_the_launch_names_the_collective_too() -> None:
    builder = TraceBuilder().annotation("nccl:all_reduce", 0, 40).op("mine::exchange", 1, 30)
    row = build_kernel_table(builder.kernel(GENERIC_KERNEL, 50, 300, launch=10).load().rank()).row(0, named=True)
    assert row["collective"] == "all_reduce"


def test_a_kernel_that_tells_its_collective_is_believed_before_the_op() -> None:
    builder = (
        TraceBuilder()
        .op("vllm::all_reduce", 0, 40)
        .kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", 50, 9, launch=9)
    )
    assert build_kernel_table(builder.load().rank())["collective"].to_list() == ["reduce_scatter"]
