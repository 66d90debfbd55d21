"""Sizes of messages from the launch of their kernels."""

import polars as pl
import pytest

from tracekit.comm.message_sizes import SIZE_TOLERANCE, bound_message_bytes

CASES = {  # name: channels, threads, ranks, least and most bytes by hand; the communicator has 12 channels
    "LL on some channels": (3, 512, 8, 3 * 512 * 64, 4 * 512 * 64),
    "Simple on one": (1, 544, 8, 512 * 64, 2 * 512 * 64),
    "LL128 on eleven": (11, 640, 8, 11 * 640 * 8, 12 * 640 * 8),
    "half the threads": (1, 256, 2, 256 * 16, 2 * 256 * 16),
    "fewest threads": (1, 64, 2, 0, 2 * 64 * 16),
    "all channels": (12, 544, 8, 12 * 512 * 64, None),
}


def launches(*rows: tuple[str, int, int, int]) -> pl.DataFrame:
    table = pl.DataFrame(rows, schema=["name", "blocks", "threads_per_block", "ranks"], orient="row")
    return table.with_columns(process_group=pl.lit("0"))


@pytest.mark.parametrize("case", CASES)
def test_the_launch_bounds_the_size(case):
    channels, threads, ranks, least, most = CASES[case]
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    found = bound_message_bytes(launches((name, channels, threads, ranks), (name, 12, 544, ranks))).row(0, named=True)
    assert found["least_bytes"] == pytest.approx(least * (1 - SIZE_TOLERANCE))
    assert found["most_bytes"] == (most if most is None else pytest.approx(most * (1 + SIZE_TOLERANCE)))


@pytest.mark.parametrize("name", ["ncclDevKernel_Generic", "ncclDevKernel_SendRecv", "cross_device_reduce_1stage"])
def test_other_kernels_tell_nothing(name):
    assert bound_message_bytes(launches((name, 2, 512, 8), (name, 4, 512, 8))).null_count().row(0) == (2, 2)


def test_the_launch_agrees_with_sizes_that_were_recorded(real_traces):
    """V100, 8 ranks: a small and two large all-reduces whose sizes the execution trace has."""
    import tracekit as tk
    from tracekit.workload.kernel_table import build_kernel_table

    trace = tk.load(real_traces / "v100_dlrm_train_rank0_of_8.json.gz", cache=False)
    rows = build_kernel_table(trace.rank()).filter(pl.col("collective") == "all_reduce")
    found = rows.hstack(bound_message_bytes(rows))
    assert found.height == 3
    assert (found["bytes"] >= found["least_bytes"]).all()
    assert (found["bytes"] <= found["most_bytes"].fill_null(2**60)).all()
