"""Work of pointwise kernels without shapes, from their launch."""

import polars as pl
import pytest

import tracekit as tk
from tracekit.testing import TraceBuilder
from tracekit.workload import geometry
from tracekit.workload.extract import extract

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
    """A kernel without shapes, as ``extract`` describes it; another one keeps the grid from being a multiple."""
    builder = TraceBuilder().kernel("other", 40, 5, launch=30, grid=[3, 1, 1], block=[128, 1, 1])
    builder.kernel(name, 20, 10, launch=1, grid=[blocks, 1, 1], block=[threads, 1, 1], **kwargs)
    return extract(builder.load().rank()).filter(pl.col("name") == name).row(0, named=True)


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


def test_amd_counts_the_grid_in_threads():
    name = ADD.replace("at::detail::Array", "std::array")
    builder = TraceBuilder().kernel("other", 40, 5, launch=30, grid=[512, 1, 1], block=[256, 1, 1])
    builder.kernel(name, 20, 10, launch=1, grid=[25600, 1, 1], block=[256, 1, 1])
    kernels = extract(builder.load().rank()).filter(pl.col("name") == name)
    assert kernels["cols"].to_list() == [100 * 256 * 4]


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
    row = extract(builder.load().rank()).row(0, named=True)
    assert (row["work_from"], row["bytes"], row["work_low"]) == ("shapes", 12_000, None)


def test_recorded_shapes_lie_inside_the_bracket(real_traces):
    """Pointwise kernels with shapes, told again from their launch."""
    kernels = extract(tk.load(real_traces / "v100_resnet50_train_6steps_2021.json.gz").rank())
    hidden = kernels.with_columns(work_from=pl.lit(None, pl.String))
    both = geometry.fill(hidden).with_columns(recorded=kernels["bytes"] * kernels["share"], of=kernels["work_from"])
    told = both.filter((pl.col("work_from") == "geometry") & (pl.col("of") == "shapes"))
    ratio = pl.col("recorded") / pl.col("bytes")
    inside = ratio.is_between(pl.col("work_low") * 0.99, pl.col("work_high") * 1.01)
    assert told.height > 1000
    assert told.select(inside.mean()).item() > 0.95
