"""Work of pointwise kernels without shapes, from their launch."""

import polars as pl
import pytest

import tracekit as tk
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.work_inference import grids

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int)"
)
STRIDED = (
    "void at::native::elementwise_kernel<128, 2, "
    "at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, float> > >"
)
GEMM = "volta_sgemm_128x64_nn"


def launched(name: str, blocks: int, threads: int = 128, **kwargs) -> dict[str, object]:
    """A kernel without shapes, as ``extract`` describes it."""
    builder = TraceBuilder().kernel(name, 20, 10, launch=1, grid=[blocks, 1, 1], block=[threads, 1, 1], **kwargs)
    return build_kernel_table(builder.load().rank()).row(0, named=True)


def test_a_vectorised_kernel():
    """100 blocks of 128 threads of 4 elements: 51,200, of which each is read twice and written once."""
    row = launched(ADD, 100)
    assert (row["cols"], row["flops"], row["bytes"]) == (51_200, 51_200, 3 * 4 * 51_200)
    assert row["work_from"] == "geometry"
    # 99 full blocks and one element, and one of three tensors may be a mask.
    assert row["work_low"] == pytest.approx((99 * 512 + 1) / 51_200 * 9 / 12)
    assert row["work_high"] == 1.0


def test_an_operand_of_a_strided_kernel_may_be_broadcast():
    row = launched(STRIDED, 100)
    assert row["bytes"] == 2 * 4 * 100 * 128 * 2
    assert row["work_low"] == pytest.approx((99 * 256 + 1) / 25_600 / 2)
    assert row["work_high"] == 3 / 2


SOFTMAX = "void (anonymous namespace)::softmax_warp_{}<{}, float, {}, true, false>(float*, float const*, int, int)"


@pytest.mark.parametrize(
    ("kernel", "rows", "cols", "bytes_", "low"),
    [
        # 4 warps to a block, a row each: 32 rows of 513 to 1024 elements, in and out; only one in the last block.
        (SOFTMAX.format("forward", "float, float", 10), 32, 1024, 2 * 4 * 32 * 1024, 29 / 32 * 513 / 1024),
        # The gradient and the result, which is narrower, in; the other gradient out.
        (SOFTMAX.format("backward", "c10::Half, float", 10), 32, 1024, 8 * 32 * 1024, 29 / 32 * 513 / 1024),
        # 16 parts of a warp to a block, two rows of 5 to 8 elements each.
        (SOFTMAX.format("forward", "c10::Half, c10::Half", 3), 256, 8, 4 * 256 * 8, 225 / 256 * 5 / 8),
    ],
)
def test_softmax_over_short_rows(kernel, rows, cols, bytes_, low):
    row = launched(kernel, 8)
    assert [row[name] for name in ("family", "rows", "cols", "bytes")] == ["softmax", rows, cols, bytes_]
    assert (row["work_low"], row["work_high"]) == (pytest.approx(low), 1.0)


def test_amds_wavefronts_take_twice_as_many_elements():
    builder = TraceBuilder().kernel("Cijk_Alik_Bljk_SB_MT32x32x64", 40, 5, launch=30, grid=[3, 1, 1], block=[128, 1, 1])
    name = SOFTMAX.format("forward", "float, float", 7)
    builder.kernel(name, 20, 10, launch=1, grid=[64, 1, 1], block=[128, 1, 1])
    kernels = build_kernel_table(builder.load().rank()).filter(pl.col("name") == name)
    assert kernels.select("rows", "cols").row(0) == (64 * 2 * 2, 128)


def test_grids_that_are_all_multiples_of_the_block_count_blocks_too():
    name = ADD.replace("at::detail::Array", "std::array")
    builder = TraceBuilder().kernel("other", 40, 5, launch=30, grid=[512, 1, 1], block=[256, 1, 1])
    builder.kernel(name, 20, 10, launch=1, grid=[25600, 1, 1], block=[256, 1, 1])
    kernels = build_kernel_table(builder.load().rank()).filter(pl.col("name") == name)
    assert kernels["cols"].to_list() == [25600 * 256 * 4]


@pytest.mark.parametrize(
    "name",
    [
        GEMM,
        "my_kernel",
        "void at::native::vectorized_elementwise_kernel<4, my_functor<float> >",
        "reduce_kernel<512, 1>",
    ],
)
def test_other_launches_tell_no_work(name):
    row = launched(name, 100)
    assert (row["work_from"], row["work_low"]) == (None, None)


def test_shapes_win():
    builder = TraceBuilder().op("aten::add", 0, 10, dims=[[1000], [1000], []], types=["float", "float", "Scalar"])
    builder.kernel(ADD, 20, 10, launch=1, grid=[2, 1, 1], block=[128, 1, 1])
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    assert (row["work_from"], row["bytes"], row["work_low"]) == ("shapes", 12_000, None)


def test_recorded_shapes_lie_inside_the_bracket(real_traces):
    """Pointwise kernels with shapes, told again from their launch."""
    trace = tk.load(real_traces / "v100_resnet50_train_6steps_2021.json.gz").rank()
    kernels = build_kernel_table(trace)
    hidden = kernels.with_columns(work_from=pl.lit(None, pl.String))
    both = grids.infer_pointwise_work(hidden, trace).with_columns(
        recorded=kernels["bytes"] * kernels["share"], of=kernels["work_from"]
    )
    told = both.filter((pl.col("work_from") == "geometry") & (pl.col("of") == "shapes"))
    ratio = pl.col("recorded") / pl.col("bytes")
    inside = ratio.is_between(pl.col("work_low") * 0.99, pl.col("work_high") * 1.01)
    assert told.height > 1000
    assert told.select(inside.mean()).item() > 0.95
