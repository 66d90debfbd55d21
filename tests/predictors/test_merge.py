"""Laws that were fitted one by one go into the shipped weights together."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from predictors.corrections import SymmetricTrees
from predictors.gpu_order import GpuOrder
from predictors.training import __main__ as command
from predictors.training.fit_all import replace_laws
from predictors.training.views import VIEWS, get_spread_column, get_time_column
from predictors.weights_file import Weights, load_weights, save_weights

NOT_SHOWN = [*map(get_time_column, VIEWS), *map(get_spread_column, VIEWS), "model_spread", "source_ratio"]


def write_fit(folder: Path, law: str, floor: float, missed: float) -> None:
    """Write a fit of one law, on an H100, with 100 scored kernels that are missed by so much."""
    shipped = load_weights()
    constants = replace(shipped.laws[law], base={**shipped.laws[law].base, "floor": floor})
    tree = SymmetricTrees(np.zeros((1, 1), np.int16), np.zeros((1, 1), np.float32), np.full((1, 2), floor, np.float32))
    save_weights(replace_laws(shipped, Weights({law: constants}, {f"all/{law}": tree})), folder)
    row = {
        "law": law, "gpu": "h100-sxm", "situation": "base", "framework": "fa3", "engine": "vllm", "release": 1900.0,
        "dtype": "bf16", "fitted": 500, "latency_us": 100.0, "model_us": 100.0 * float(np.exp(missed)),
        "law_us": 100.0, "roofline_us": 100.0, "peak_ratio_us": 100.0, "kinship": None, **dict.fromkeys(NOT_SHOWN),
    }  # fmt: skip
    rows = pl.DataFrame(
        [row | {"shape": shape} for shape in range(100)], schema_overrides=dict.fromkeys(NOT_SHOWN, pl.Float64)
    )
    rows.with_columns(pl.col("kinship").cast(pl.String)).write_parquet(folder / "scored.parquet")


@pytest.mark.heavy
def test_each_law_is_that_of_the_last_fit_of_it_and_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fits = {"a": ("prefill", 8.0, 0.1), "b": ("decode", 9.0, 0.2), "c": ("prefill", 7.0, 0.3)}
    for name, (law, floor, missed) in fits.items():
        write_fit(tmp_path / name, law, floor, missed)
    monkeypatch.setattr(command, "derive_gpu_order", lambda weights: GpuOrder())
    folders = [str(tmp_path / name) for name in fits]
    options = ["--out", str(tmp_path / "out"), "--tables", str(tmp_path / "tables")]
    monkeypatch.setattr(sys, "argv", ["training", "merge", *folders, *options])
    command.main()
    merged, shipped = load_weights(tmp_path / "out"), load_weights()
    assert [merged.laws[law].base["floor"] for law in ("prefill", "decode")] == [7.0, 9.0]
    assert merged.laws["norm"] == shipped.laws["norm"]
    assert [name for name in merged.corrections if name.endswith("/prefill")] == ["all/prefill"]
    assert merged.corrections["all/decode"].leaf.tolist() == [[9.0, 9.0]]
    # One GPU: twice what holds its kernels around a middle that 30 more pull to 0; they are 0.3 and 0.2 off.
    assert [merged.intervals[law]["base"] for law in ("prefill", "decode")] == pytest.approx(
        [2 * 0.3 * 30 / 130, 2 * 0.2 * 30 / 130], abs=1e-4
    )
    assert merged.intervals["norm"] == shipped.intervals["norm"]
    card = tomllib.loads((tmp_path / "out/card.toml").read_text())["laws"]
    assert card["decode"]["cells"] == {"h100-sxm, vllm 0.19.0": [500, 100, 22.1, 22.1, 100]}
    assert card["norm"] == tomllib.loads((command.SHIPPED_WEIGHTS / "card.toml").read_text())["laws"]["norm"]
    assert (
        pl.read_parquet(tmp_path / "tables/scored.parquet")["law"].value_counts(sort=True)["count"].to_list()
        == [100] * 2
    )
