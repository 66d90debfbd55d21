"""The battery for predictors: ours passes on GPUs of every kind, and broken ones don't."""

from __future__ import annotations

import polars as pl
import pytest

from predictors import list_gpus, load_gpu, predict
from predictors.gpu import Gpu
from predictors.testing import check_predictor

pytestmark = pytest.mark.heavy


def ends_of_each_generation() -> list[str]:
    """The GPUs of fewest and of most SMs of each compute capability."""
    generations: dict[str, list[Gpu]] = {}
    for gpu in map(load_gpu, list_gpus()):
        generations.setdefault(gpu.compute_capability, []).append(gpu)
    ends = ((min(g, key=lambda gpu: gpu.sms), max(g, key=lambda gpu: gpu.sms)) for g in generations.values())
    return sorted({gpu.slug for pair in ends for gpu in pair})


@pytest.mark.parametrize("gpu", ends_of_each_generation())
def test_ours_passes(gpu: str):
    check_predictor(predict, [gpu])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (pl.col("time_us") / 1000, "under its bound"),
        (pl.lit(1e9) / pl.col("time_us"), "four times the size takes less"),
        (pl.col("time_us") + pl.int_range(pl.len()), "the order of the rows matters"),
        (pl.col("time_us") * 1.001, "does not give it back"),
        (pl.lit(float("nan")), "not finite"),
    ],
)
def test_a_broken_predictor_is_caught(broken: pl.Expr, says: str):
    def wrong(*args: object, **kwargs: object) -> pl.DataFrame:
        return predict(*args, **kwargs).with_columns(time_us=broken, high_us=pl.lit(1e12))

    with pytest.raises(AssertionError, match=says):
        check_predictor(wrong, ["h100-sxm"])
