"""Speed of predicting kernels, as a ratio to numpy's own pace in the same run."""

import numpy as np
import polars as pl

from predictors import Batch, list_gpus, predict
from tests.benchmarks.timing import best

KERNELS = 50_000


def products() -> pl.DataFrame:
    draw = np.random.default_rng(0)
    shape = {name: draw.integers(1, 8192, KERNELS) for name in ("m", "n", "k")}
    return pl.DataFrame(shape).with_columns(family=pl.lit("gemm"), dtype=pl.lit("bf16"))


def test_products_against_the_arithmetic_they_need(benchmark):
    """Fifty tiles and splits of two powers each, and 450 trees, against numpy doing just that.

    Measured: 10 to 15 times as long, 120,000 to 220,000 kernels a CPU second; half of it is the order of GPUs, for
    which kernels that may contradict it are evaluated on others.
    """
    kernels = products()
    x, leaf = np.linspace(1, 2, KERNELS), np.zeros(KERNELS, dtype=np.uint8)

    def powers() -> None:
        for _ in range(100):
            np.power(x, 0.3)

    def comparisons() -> None:
        for _ in range(450 * 8):
            np.greater(leaf, 1)

    predict(kernels.head(100), "h100-sxm")
    benchmark(predict, kernels, "h100-sxm")
    took, limit = best(lambda: predict(kernels, "h100-sxm")), best(powers) + best(comparisons)
    benchmark.extra_info["thousand kernels per CPU second"] = KERNELS / took / 1e3
    benchmark.extra_info["times numpy's limit"] = took / limit
    assert took < 25 * limit


def test_a_sweep_works_each_distinct_kernel_out_once():
    """200,000 launches of 40 products on 30 GPUs, against writing down as many numbers ten times.

    Measured: 34 to 51 times as long, 0.4 to 0.9 CPU seconds in all. With each launch worked out it is thousands.
    """
    launches = pl.concat([products().head(40)] * 5000)
    launches = launches.with_columns(measured_us=pl.Series(np.linspace(10, 1000, launches.height)))
    x = np.linspace(1, 2, launches.height)
    batch = Batch(launches, source_gpu="h100-sxm")

    def sweep() -> None:
        for gpu in list_gpus()[:30]:
            batch.on(gpu)

    def writing() -> None:
        for _ in range(30 * 10):
            np.multiply(x, 2.0)

    sweep()
    assert best(sweep, repeats=2) < 120 * best(writing)
