"""Cells of a fit: the kernels of one release of an engine on one GPU, and how many lie inside their interval."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from predictors import predict
from predictors.laws.law import LAWS
from predictors.training.__main__ import main
from predictors.training.cells import (
    CELL_COLUMNS,
    COVERAGE_COLUMNS,
    describe_cells,
    describe_coverage,
    find_miscovered,
    find_misfits,
    read_cells,
    read_coverage,
    summarise_cells,
)
from predictors.training.evaluate import summarise_errors
from predictors.training.report import format_card
from predictors.training.views import VIEWS, get_spread_column, get_time_column
from predictors.training.widths import fit_intervals
from predictors.weights_file import SHIPPED_WEIGHTS, LawConstants, Weights, save_weights

BASE = {name: float(np.log(prior[0])) for name, prior in LAWS["gemm half"].priors.items()}
MISSED = 0.5
"""Logarithm by which the kernels of vLLM's release are missed."""


def build_rows() -> pl.DataFrame:
    """1,000 kernels that SGLang 0.5.10 ran and 40 of vLLM 0.19.0 on an H100; the latter take 1.6 times as long."""
    cells = {("sglang", 510.0, 0.05): 1000, ("vllm", 1900.0, MISSED): 40}
    not_shown = [*map(get_time_column, VIEWS), *map(get_spread_column, VIEWS), "model_spread", "source_ratio"]
    return pl.DataFrame(
        [
            {
                "law": "gemm half", "gpu": "h100-sxm", "situation": "base", "framework": "cublas", "engine": engine,
                "release": release, "dtype": "bf16", "shape": shape, "fitted": 5 * count, "latency_us": 100.0,
                "model_us": 100.0 * float(np.exp(-missed)), "kinship": None,
                **dict.fromkeys(["law_us", "roofline_us", "peak_ratio_us"], 100.0),
                **dict.fromkeys(not_shown),
            }
            for (engine, release, missed), count in cells.items()
            for shape in range(count)
        ],
        schema_overrides={**dict.fromkeys(not_shown, pl.Float64), "kinship": pl.String},
    )  # fmt: skip


def test_a_cell_outside_of_its_gpus_interval_names_itself():
    weights = Weights({"gemm half": LawConstants(BASE, gpu={"h100-sxm": {}})}, intervals={"gemm half": {"base": 0.1}})
    cells = summarise_cells(build_rows(), weights)
    assert cells.select("engine", "release", "fitted", "kernels", "inside").rows() == [
        ("sglang", 510.0, 5000, 1000, 100.0),
        ("vllm", 1900.0, 200, 40, 0.0),
    ]
    assert cells["median"].to_list() == pytest.approx([100 * (1 - np.exp(-0.05)), 100 * (1 - np.exp(-MISSED))])
    assert find_misfits(cells, CELL_COLUMNS) == ["gemm half, h100-sxm, vllm, 1900.0: 0 % of 40 kernels inside"]
    assert find_misfits(cells, CELL_COLUMNS, min_kernels=41) == []
    assert find_misfits(cells, names=["engine"], least=0, most=95) == ["sglang: 100 % of 1000 kernels inside"]


def test_a_release_that_is_missed_by_more_has_a_wider_interval_there_and_nowhere_else():
    rows = build_rows()
    found = fit_intervals(rows)
    laws = {"gemm half": LawConstants(BASE, gpu={"h100-sxm": {}})}
    weights = Weights(laws, intervals=found.widths, centres=found.centres)
    widths, centres = found.widths["gemm half"], found.centres["gemm half"]
    # Its 40 kernels count 40, the law's middle 30.
    assert centres["base"] == pytest.approx(0.05 * 1040 / 1070)
    assert centres["h100-sxm, vllm 1900"] == pytest.approx((40 * MISSED + 30 * centres["base"]) / 70)
    assert widths["h100-sxm, vllm 1900"] == pytest.approx(MISSED - centres["h100-sxm, vllm 1900"])
    assert [key for key in widths if "sglang" in key] == []
    assert summarise_cells(rows, weights)["inside"].to_list() == [100.0, 100.0]


def test_a_prediction_uses_the_width_of_its_own_release(tmp_path: Path):
    fitted_releases = {"h100-sxm": {f"gemm/{engine}/cublas": [1900.0, 2000.0] for engine in ("sglang", "vllm")}}
    fitted = LawConstants(BASE, gpu={"h100-sxm": {}}, releases=fitted_releases)
    widths = {"base": 0.1, "sibling": 0.1, "class": 0.1, "h100-sxm, vllm 1900": 0.9}
    centres = {"base": 0.02, "h100-sxm, vllm 1900": -0.2}
    weights = Weights({"gemm half": fitted}, intervals={"gemm half": widths}, centres={"gemm half": centres})
    save_weights(weights, tmp_path)
    gemm = {"family": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096, "framework": "cublas"}
    releases = [("vllm", 1900.0), ("vllm", 2000.0), ("sglang", 1900.0)]
    kernels = pl.DataFrame([gemm | {"engine": engine, "release": release} for engine, release in releases])
    on_h100, on_h200 = (predict(kernels, gpu, weights=tmp_path) for gpu in ("h100-sxm", "h200-sxm"))
    assert np.log(on_h100["high_us"] / on_h100["time_us"]).to_list() == pytest.approx([0.7, 0.12, 0.12], abs=1e-6)
    assert np.log(on_h100["low_us"] / on_h100["time_us"]).to_list()[1:] == pytest.approx([-0.08, -0.08], abs=1e-6)
    assert np.log(on_h200["high_us"] / on_h200["time_us"]).max() < 0.5


def test_a_card_tells_its_cells_and_a_check_fails_by_name(tmp_path: Path):
    weights = Weights({"gemm half": LawConstants(BASE, gpu={"h100-sxm": {}})}, intervals={"gemm half": {"base": 0.1}})
    cells = summarise_cells(build_rows(), weights)
    assert describe_cells(cells)["h100-sxm, vllm 0.19.0"] == [200, 40, 39.3, 39.3, 0]
    assert describe_cells(cells.with_columns(engine=None, release=None))["h100-sxm"][1] == 40
    card = format_card(weights, summarise_errors(build_rows()), cells, [])
    (tmp_path / "card.toml").write_text(card)
    assert '"h100-sxm, vllm 0.19.0" = [200, 40, 39.3, 39.3, 0]\n' in card
    assert read_cells(tmp_path / "card.toml").row(1) == ("gemm half", "h100-sxm, vllm 0.19.0", 200, 40, 39.3, 39.3, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["training", "check", str(tmp_path)])
        with pytest.raises(SystemExit, match=r"gemm half, h100-sxm, vllm 0\.19\.0: 0 % of 40 kernels inside"):
            main()


def test_a_law_that_holds_too_few_or_is_far_too_wide_names_itself():
    """On each of four GPUs 50 kernels: of the first law 40 % are above, of the second none, of four times the need."""
    row = {"situation": "new", "kernels": 50, "below": 0.0}
    laws = {
        "prefill": {"above": 40.0, "inside": 60.0, "width": 0.2, "needed": 0.4},
        "decode on amd": {"above": 0.0, "inside": 100.0, "width": float(np.log(4)), "needed": 0.0},
        "norm": {"above": 8.0, "inside": 92.0, "width": 0.3, "needed": 0.28},
    }
    rows = [{"law": law, "gpu": gpu, **row, **of} for law, of in laws.items() for gpu in ("a", "b", "c", "d")]
    coverage = pl.DataFrame(rows)
    entries = {law: describe_coverage(coverage.filter(law=law)) for law in laws}
    assert entries["prefill"] == {"new": [4, 200, 0, 40, 60, 1.22, 1.49]}
    assert entries["decode on amd"] == {"new on amd": [4, 200, 0, 0, 100, 4, 1]}
    flat = [(law, where, *of) for law, entry in entries.items() for where, of in entry.items()]
    table = pl.DataFrame(flat, schema=["law", "where", *COVERAGE_COLUMNS], orient="row")
    assert [line.split(":")[0] for line in find_miscovered(table)] == ["decode on amd, new on amd", "prefill, new"]
    assert find_miscovered(table, min_gpus=5) == []


FEW_GPUS_MISCOVERED = {
    "elementwise, class on amd",
    "elementwise, new on amd",
    "gemm fp32, new on amd",
    "gemm fp8_block, new on amd",
    "gemm half, new on amd",
    "miopen fp32, class on amd",
    "miopen grouped, class on amd",
    "norm, calibrated on amd",
    "norm, class on amd",
}
"""Of AMD's two or three GPUs: an interval of the next one is made of one or two others, which tell little of it."""


@pytest.mark.skipif(read_coverage(SHIPPED_WEIGHTS / "card.toml").is_empty(), reason="the card tells no coverage")
def test_intervals_of_two_or_three_gpus_hold_as_many_but_for_those_that_are_known_not_to():
    lines = find_miscovered(read_coverage(SHIPPED_WEIGHTS / "card.toml"), min_gpus=2)
    assert {line.split(":")[0] for line in lines} == FEW_GPUS_MISCOVERED


@pytest.mark.skipif(read_coverage(SHIPPED_WEIGHTS / "card.toml").is_empty(), reason="the card tells no coverage")
def test_intervals_of_the_shipped_weights_hold_85_to_95_percent_by_law_and_transfer():
    """Those that hold more are at most 1.6 times as wide as needed."""
    assert find_miscovered(read_coverage(SHIPPED_WEIGHTS / "card.toml")) == []


def test_no_cell_of_the_shipped_weights_is_under_80_percent_inside():
    cells = read_cells(SHIPPED_WEIGHTS / "card.toml")
    assert find_misfits(cells) == []
    engines = {
        law for law, of in tomllib.loads((SHIPPED_WEIGHTS / "card.toml").read_text())["laws"].items() if "cells" in of
    }
    assert {"gemm half", "prefill", "decode", "moe half"} <= engines
