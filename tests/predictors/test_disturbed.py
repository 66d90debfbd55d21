"""Runs whose times jump from shape to shape, against the same engine's newest release, don't enter the fit."""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.training.disturbed import RUN, drop_disturbed, find_disturbed_runs

SHAPES = 40
ROWS = {
    "law": "encoder", "engine": "vllm", "dtype": "bf16", "head_dim": 64.0,
    "shape": np.arange(SHAPES), "work_flops": np.arange(1.0, SHAPES + 1),
}  # fmt: skip


def build_run(gpu: str, release: float, times_us: np.ndarray, law: str = "encoder") -> pl.DataFrame:
    return pl.DataFrame(ROWS | {"gpu": gpu, "release": release, "latency_us": times_us, "law": law})


def test_a_run_that_jumps_is_left_out_and_a_slow_or_steady_one_is_kept() -> None:
    newest = np.linspace(100, 4000, SHAPES)
    jumps = np.where(np.arange(SHAPES) % 3 == 0, 4.0, 1.0)
    rows = pl.concat(
        [
            *(build_run(gpu, 2400.0, newest) for gpu in ("b200", "gb200", "gb300")),
            build_run("b200", 1900.0, newest * jumps),
            build_run("gb200", 1900.0, newest * 4),
            build_run("gb300", 1900.0, newest * 1.01),
        ]
    )
    found = find_disturbed_runs(rows)
    assert found.select(RUN).rows() == [("encoder", "b200", "vllm", 1900.0)]
    kept = drop_disturbed(rows)
    assert kept.height == 5 * SHAPES
    assert kept.filter(pl.col("gpu") == "b200")["release"].unique().to_list() == [2400.0]


def test_short_kernels_and_other_laws_say_nothing() -> None:
    jumps = np.where(np.arange(SHAPES) % 3 == 0, 4.0, 1.0)
    short = pl.concat([build_run("b200", 2400.0, np.full(SHAPES, 4.0)), build_run("b200", 1900.0, 4.0 * jumps)])
    decode = pl.concat(
        [build_run("b200", r, 100.0 * t, "decode") for r, t in ((2400.0, np.ones(SHAPES)), (1900.0, jumps))]
    )
    for rows in (short, decode):
        assert drop_disturbed(rows).equals(rows)
