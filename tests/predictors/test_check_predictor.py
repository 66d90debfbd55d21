"""The battery for predictors: ours passes on every GPU, and broken ones don't."""

from __future__ import annotations

import polars as pl
import pytest

from predictors import list_gpus, predict
from predictors.testing import check_predictor


@pytest.mark.parametrize("gpu", list_gpus())
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
