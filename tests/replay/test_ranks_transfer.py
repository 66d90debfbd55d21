"""Transfer times of collectives; microseconds."""

import polars as pl

from tracekit.replay.collective_transfer import estimate_transfer_us
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table


def all_reduces(
    *sizes_and_times: tuple[int, float], stream: int = 9, name: str = "ncclDevKernel_AllReduce"
) -> pl.DataFrame:
    builder = TraceBuilder().op("aten::mm", 0, 10).kernel("gemm", 8, 50, launch=1)
    now = 100.0
    for nelems, dur in sizes_and_times:
        recorded = {"Collective name": "allreduce", "dtype": "Float", "Group size": 8, "Process Group Name": "0"}
        builder.kernel(name, now, dur, launch=now - 9, stream=stream, **recorded, **{"In msg nelems": nelems})
        now += dur + 50
    return build_kernel_table(builder.load().rank())


def test_only_collectives_have_one():
    kernels = all_reduces((1000, 40))
    assert estimate_transfer_us(kernels).to_list() == [None, 40]


def test_the_shortest_repeat_shows_the_transfer():
    kernels = all_reduces((1000, 40), (1000, 30), (1000, 90))
    assert estimate_transfer_us(kernels).drop_nulls().to_list() == [30, 30, 30]


def test_a_larger_one_that_was_quicker_shows_that_the_smaller_one_waited():
    kernels = all_reduces((1000, 400), (4000, 70), (8000, 120))
    assert estimate_transfer_us(kernels).drop_nulls().to_list() == [70, 70, 120]


def test_groups_don_t_tell_of_each_other():
    """Stream 9 and stream 11 are two communicators."""
    first = all_reduces((1000, 40))
    second = all_reduces((1000, 90), stream=11)
    assert estimate_transfer_us(pl.concat([first, second])).drop_nulls().to_list() == [40, 90]


def test_without_sizes_the_launch_tells_which_are_alike():
    builder = TraceBuilder()
    for i, (blocks, dur) in enumerate(((2, 50), (2, 20), (8, 90))):
        builder.kernel("ncclDevKernel_SendRecv", 200 * i, dur, stream=9, grid=[blocks, 1, 1], block=[512, 1, 1])
    assert estimate_transfer_us(build_kernel_table(builder.load().rank())).to_list() == [20, 20, 90]


def test_without_sizes_different_kernels_are_not_alike():
    builder = TraceBuilder()
    for i, (name, dur) in enumerate((("notify_dispatch", 5), ("dispatch", 90), ("dispatch", 70))):
        builder.kernel(f"void deep_ep::intranode::{name}<8>(int*)", 200 * i, dur, stream=9, grid=[20, 1, 1])
    assert estimate_transfer_us(build_kernel_table(builder.load().rank())).to_list() == [5, 70, 70]


def test_exchanges_of_one_size_there_and_back_are_not_alike():
    """An exchange's combine takes less time than its dispatch of as many bytes, which never waits for that."""
    kernels = all_reduces((1000, 90), (1000, 30)).with_columns(collective=pl.lit("all_to_all"))
    phases = pl.Series(["gemm", *(f"deep_ep::intranode::{phase}" for phase in ("dispatch", "combine"))])
    assert estimate_transfer_us(kernels.with_columns(name=phases)).drop_nulls().to_list() == [90, 30]


def test_joined_ranks_tell_better():
    kernels = all_reduces((1000, 40), (1000, 30))
    joined = pl.DataFrame({"row": [1], "transfer_us": [12.5]})
    assert estimate_transfer_us(kernels, joined).to_list() == [None, 12.5, 30]


def test_no_collectives():
    kernels = build_kernel_table(TraceBuilder().kernel("gemm", 0, 10).load().rank())
    assert estimate_transfer_us(kernels).to_list() == [None]


def test_the_ids_of_a_collective_are_read():
    recorded = {"Seq": 17, "Comms Id": 18446744073709551615, "Process Group Name": "0"}
    row = build_kernel_table(TraceBuilder().kernel("ncclDevKernel_AllReduce", 0, 10, **recorded).load().rank()).row(
        0, named=True
    )
    assert (row["collective_sequence"], row["collective_id"]) == (17, "18446744073709551615")
