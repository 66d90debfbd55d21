"""A GPU of which nothing but the datasheet is known, against what others measured on it."""

import polars as pl
import pytest

from predictors import Batch

# NVIDIA GB10, cuBLAS in fp16, GFLOP/s: ml-explore/mlx#3137.
CUBLAS = [
    (n, k, m, gflops)
    for (n, k), rates in {
        (5120, 4096): (237.6, 474.3, 921.0, 1889.9, 3702.3, 7057.5, 13593.3, 22950.1),
        (8192, 8192): (192.0, 446.7, 866.3, 1780.1, 3540.8, 6250.3, 12896.2, 25009.9),
    }.items()
    for m, gflops in zip((1, 2, 4, 8, 16, 32, 64, 128), rates, strict=True)
]
# The same GPU: PyTorch in bf16 (huggingface/kernels#283), and what FluidX3D's table of updates says of its memory.
TFLOPS, MOVED_GBPS = 92.3, (177, 218)


def test_products_of_few_rows_on_a_gb10():
    table = pl.DataFrame(CUBLAS, schema=["n", "k", "m", "gflops"], orient="row")
    shapes = table.select("m", "n", "k", family=pl.lit("gemm"), dtype=pl.lit("fp16"))
    got = (
        Batch(shapes)
        .on("gb10")
        .hstack(table.select(us=2 * pl.col("m") * pl.col("n") * pl.col("k") / pl.col("gflops") / 1e3))
    )
    error = (got["time_us"] / got["us"] - 1).abs()
    assert error.median() < 0.1
    assert error.max() < 0.2
    assert got.select(((pl.col("low_us") < pl.col("us")) & (pl.col("us") < pl.col("high_us"))).all()).item()


def test_large_products_and_copies_on_a_gb10():
    product = {"family": "gemm", "dtype": "bf16", "m": 8192, "n": 8192, "k": 8192}
    copy = {"family": "copy", "dtype": "bf16", "rows": 16384, "cols": 8192, "bytes": 2**29}
    rows = Batch(pl.DataFrame([product, copy], infer_schema_length=None)).on("gb10")
    tflops, gbps = 2 * 8192**3 / rows["time_us"][0] / 1e6, copy["bytes"] / rows["time_us"][1] / 1e3
    assert tflops == pytest.approx(TFLOPS, rel=0.1)
    assert MOVED_GBPS[0] < gbps < MOVED_GBPS[1]
