"""Kernels without shapes take the work of their likes."""

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table


def grid(blocks):
    return {"grid": [blocks, 1, 1], "block": [128, 1, 1]}


def product(builder, start, rows, blocks=64, dur=30.0):
    builder.op("aten::mm", start, 50, dims=[[rows, 32], [32, 16]], types=["float", "float"])
    return builder.kernel("ampere_sgemm_128x64_nn", start + 100, dur, launch=start + 10, **grid(blocks))


def described(builder):
    return build_kernel_table(builder.load().rank()).sort("ts_ns").select("m", "work_from").rows()


def test_a_kernel_without_an_op_does_what_its_like_did():
    builder = product(TraceBuilder(), 0, 64).kernel("ampere_sgemm_128x64_nn", 500, 31, launch=400, **grid(64))
    assert described(builder) == [(64, "shapes"), (64, "repeat")]


def test_another_grid_or_another_time_is_no_like():
    builder = product(TraceBuilder(), 0, 64)
    builder.kernel("ampere_sgemm_128x64_nn", 500, 31, launch=400, **grid(32))
    builder.kernel("ampere_sgemm_128x64_nn", 600, 90, launch=420, **grid(64))
    assert described(builder)[1:] == [(None, None), (None, None)]


def test_where_likes_differ_their_neighbours_tell():
    builder = TraceBuilder()
    for time, rows, neighbour in ((0, 64, "relu"), (1000, 96, "gelu"), (2000, None, "relu"), (3000, None, "gelu")):
        builder.kernel(f"norm before {neighbour}", time + 20, 5, launch=time, **grid(8))
        if rows is None:
            builder.kernel("ampere_sgemm_128x64_nn", time + 120, 30, launch=time + 30, **grid(64))
        else:
            product(builder, time + 20, rows)
        builder.kernel(neighbour, time + 170, 5, launch=time + 80, **grid(8))
    products = [row for row in described(builder) if row[1] is not None]
    assert products == [(64, "shapes"), (96, "shapes"), (64, "repeat"), (96, "repeat")]


def test_a_copy_takes_no_size_from_another():
    builder = TraceBuilder().op("aten::copy_", 0, 50, dims=[[8], [8], []], types=["float", "float", "Scalar"])
    builder.kernel("Memcpy DtoD (Device -> Device)", 60, 2, launch=10, kind="gpu_memcpy")
    builder.kernel("Memcpy DtoD (Device -> Device)", 90, 2, launch=80, kind="gpu_memcpy")
    kernels = build_kernel_table(builder.load().rank()).sort("ts_ns")
    assert kernels["bytes"].to_list() == [32, None]
