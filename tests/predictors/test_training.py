"""Training on measurements made up from a known GPU: what was put in comes out."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("scipy")

from predictors import load_gpu, predict
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.hardware import derive_hardware
from predictors.laws.law import LAWS, STREAM
from predictors.model import evaluate_law
from predictors.training.boost import boost
from predictors.training.calibration import build_min_scored_us
from predictors.training.carried import pair_kernels
from predictors.training.cells import summarise_cells
from predictors.training.datasets import load_datasets
from predictors.training.evaluate import cross_validate, summarise_by_library, summarise_errors, summarise_views
from predictors.training.fit import (
    LawFit,
    LawMeasurements,
    fit_law_and_corrections,
    load_measurements,
    refit_corrections,
)
from predictors.training.fit_all import replace_laws
from predictors.training.fit_law import LawData, fit_law
from predictors.training.report import format_card, format_markdown
from predictors.training.shared_errors import correlate_laws, fit_shared_fractions
from predictors.training.sums import BY_LAW, compute_sum_coverage
from predictors.training.views import VIEWS, get_spread_column, get_time_column
from predictors.training.widths import (
    compute_coverage,
    compute_measured_width,
    compute_unseen_width,
    fit_intervals,
)
from predictors.weights_file import SHIPPED_WEIGHTS, LawConstants, Weights, load_weights, save_weights

UNPAIRED = {
    "framework": pl.lit(None, pl.String), "engine": pl.lit(None, pl.String), "release": pl.lit(None, pl.Float64),
    "dtype": pl.lit("bf16"), "source_ratio": pl.lit(None, pl.Float64),
    "kinship": pl.lit(None, pl.String),
    **dict.fromkeys((get_time_column(view) for view in VIEWS), pl.lit(None, pl.Float64)),
    **dict.fromkeys((get_spread_column(view) for view in ("model", *VIEWS)), pl.lit(0.0)),
}  # fmt: skip
"""Columns of scored kernels without a pair on another GPU or anything told of their software."""
GEMM = {"family": "gemm", "dtype": "bf16", "framework": "vllm", "m": 512, "n": 4096, "k": 1024}
GPUS = {"a100_sxm": 0.80, "l40s": 0.70, "h100_sxm": 0.90}


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr("predictors.training.fit.SHARED_TREES", partial(boost, trees=40, depth=6, rate=0.3))
    monkeypatch.setattr("predictors.training.fit.OWN_TREES", partial(boost, trees=60, depth=6, rate=0.3))


def write_gemms(folder: Path) -> None:
    """aiconfigurator's layout: products that reach a fixed share of each GPU's roofline."""
    draw = np.random.default_rng(0)
    size = 2 ** draw.integers(5, 14, size=(3, 400))
    frames = []
    for gpu, share in GPUS.items():
        spec = load_gpu(gpu)
        m, n, k = (size[i] for i in range(3))
        compute = 2.0 * m * n * k / spec.peak_flops("bf16") * 1e6
        memory = 2.0 * (m * k + n * k + m * n) / spec.bandwidth_gbps / 1e3
        names = {"system": gpu, "framework": "vllm", "version": "0.19.0", "dtype": "bfloat16"}
        rows = pl.DataFrame({"m": m, "n": n, "k": k, "latency_us": 4 + np.hypot(compute, memory) / share})
        frames.append(rows.with_columns(pl.lit(value).alias(name) for name, value in names.items()))
    (folder / "aiconfigurator").mkdir()
    pl.concat(frames).write_parquet(folder / "aiconfigurator/gemm.parquet")


def law_error(fitted: LawFit, part: LawMeasurements) -> float:
    """Mean error of the logarithm."""
    _, time_us = evaluate_law(build_law_inputs(part.table), fitted.law, part.hardware, fitted.weights)
    return float(np.abs(np.log(time_us / part.table["latency_us"].to_numpy())).mean())


def test_the_launch_is_told_from_the_kernel():
    target = derive_hardware(load_gpu("v100-pcie-32gb"))
    rows = pl.DataFrame({"bytes": np.geomspace(1e4, 1e10, 400)})
    rows = prepare_kernels(rows.with_columns(family=pl.lit("elementwise"), dtype=pl.lit("fp32")))
    columns = build_law_inputs(rows).to_columns(target)
    truth = {name: np.log(prior[0]) for name, prior in STREAM.priors.items()} | {"memory": np.log(0.7)}
    time = STREAM.terms(columns, target, LawConstants(truth).compute_constants(target)).time_us + 15.0
    fitted, launches = fit_law(
        STREAM, [LawData(target, columns, np.ones(400), np.full(400, None), np.ones(400, dtype=bool), time)]
    )
    constants = fitted.compute_constants(target)
    assert launches["v100-pcie-32gb"] == pytest.approx(15, rel=0.1)
    assert float(constants["memory"]) == pytest.approx(0.7, rel=0.05)


@pytest.mark.parametrize(("launch_us", "shortest"), [(10.0, [200.0, 20.0]), (300.0, [1200.0, 20.0])])
def test_an_eager_time_of_few_launches_is_not_scored(launch_us, shortest):
    rows = pl.DataFrame({"source": ["eager", "graph"]})
    assert rows.select(build_min_scored_us(launch_us)).to_series().to_list() == shortest


def test_measurements_become_weights_that_predict_them(tmp_path):
    write_gemms(tmp_path)
    data = load_measurements([tmp_path], hold_out=["l40s"])
    assert sorted(part.gpu for part in data["gemm half"]) == ["a100-sxm-80gb", "h100-sxm"]
    fitted = fit_law_and_corrections("gemm half", data["gemm half"])
    ships = refit_corrections(fitted, data["gemm half"])
    assert ships.fitted == fitted.fitted
    held = law_error(fitted, data["gemm half"][1].select_shapes(test=True))
    assert law_error(ships, data["gemm half"][1].select_shapes(test=True)) < held
    save_weights(ships.weights, tmp_path / "weights")
    assert load_weights(tmp_path / "weights").laws.keys() == {"gemm half"}
    rows = load_datasets(tmp_path).filter(pl.col("gpu") == "h100-sxm", pl.col("latency_us") > 20)
    error = predict(rows, "h100-sxm", weights=tmp_path / "weights")["time_us"] / rows["latency_us"] - 1
    assert error.abs().median() < 0.05


@pytest.mark.heavy
def test_one_law_is_fitted_again_and_the_others_are_kept(tmp_path):
    write_gemms(tmp_path)
    parts = [LawMeasurements(p.gpu, p.table.head(250)) for p in load_measurements([tmp_path])["gemm half"]]
    fitted, rows = cross_validate("gemm half", parts)
    shipped = load_weights()
    merged = replace_laws(shipped, fitted.weights)
    assert merged.laws["gemm half"] == fitted.fitted
    assert {law: of for law, of in merged.laws.items() if law != "gemm half"} == {
        law: of for law, of in shipped.laws.items() if law != "gemm half"
    }
    assert {name for name in merged.corrections if name.endswith("/gemm half")} == fitted.weights.corrections.keys()
    kept = tomllib.loads((SHIPPED_WEIGHTS / "card.toml").read_text())["laws"]
    del kept["gemm half"]
    cells = summarise_cells(rows, merged)
    card = tomllib.loads(format_card(merged, summarise_errors(rows), cells, [], kept))["laws"]
    assert card.keys() == shipped.laws.keys()
    assert card["norm"] == kept["norm"]
    assert card["gemm half"]["gpus"] == ["a100-sxm-80gb", "h100-sxm", "l40s"]


def test_a_correction_counts_less_on_a_gpu_that_it_did_not_learn_from(tmp_path):
    write_gemms(tmp_path)
    rows = {"a100-sxm-80gb": 250, "l40s": 250, "h100-sxm": 20}
    few = fit_law_and_corrections(
        "gemm half",
        [LawMeasurements(p.gpu, p.table.head(rows[p.gpu])) for p in load_measurements([tmp_path])["gemm half"]],
    )
    assert few.fitted.taught == ["a100-sxm-80gb", "l40s"]
    every = replace(few, fitted=replace(few.fitted, taught=[*rows]))
    h100, kernels = derive_hardware(load_gpu("h100-sxm")), build_law_inputs(prepare_kernels(pl.DataFrame([GEMM])))
    law, part, whole = (
        np.log(evaluate_law(kernels, "gemm half", h100, weights)[1])
        for weights in (Weights({"gemm half": few.fitted}), few.weights, every.weights)
    )
    assert abs(whole - law) > 1e-3
    assert part - law == pytest.approx(LAWS["gemm half"].unseen_gpu_fraction * (whole - law))


@pytest.mark.heavy
def test_every_gpu_and_every_class_is_left_out_once(tmp_path):
    write_gemms(tmp_path)
    parts = [LawMeasurements(p.gpu, p.table.head(250)) for p in load_measurements([tmp_path])["gemm half"]]
    fitted, rows = cross_validate("gemm half", parts)
    errors = summarise_errors(rows)
    situations = {gpu: set(part["situation"]) for (gpu,), part in errors.group_by("gpu")}
    assert situations["h100-sxm"] == {"base", "new", "calibrated"}
    assert situations["l40s"] == situations["a100-sxm-80gb"] == {"base", "class", "new", "calibrated"}
    middle = {row["situation"]: row["model_median"] for row in errors.filter(pl.col("gpu") == "l40s").to_dicts()}
    assert middle["calibrated"] < middle["class"]
    found = fit_intervals(rows)
    intervals, transfer = found.widths, found.exponents
    widths = intervals["gemm half"]
    assert 0 < widths["base"] <= widths["sibling"] <= widths["class"] <= widths["new"]
    assert widths["calibrated"] >= widths["base"]
    assert widths["nothing"] >= 0
    assert widths["engine"] >= 0
    inside = compute_coverage(rows)
    assert set(inside["gpu"]) == {"a100-sxm-80gb", "l40s"}  # of the H100 too few were scored
    assert inside["inside"].is_between(0, 100).all()
    assert all(0 <= e <= 1 for e in transfer.get("gemm half", {}).values())
    card = tomllib.loads(format_card(fitted.weights, errors, summarise_cells(rows, fitted.weights), ["t4"]))
    assert card["held_out"] == ["t4"]
    of_law = card["laws"]["gemm half"]
    assert of_law["gpus"] == ["a100-sxm-80gb", "h100-sxm", "l40s"]
    del of_law["gpus"]
    assert (
        sum(kernels for _, kernels, *_ in of_law.pop("cells").values())
        == rows.filter(pl.col("situation") == "base").height
    )
    assert {kind: of["median"] for kind, rows in of_law.items() for of in rows if of["gpu"] == "l40s"} == {
        "in_base": round(middle["base"], 1),
        "left_out": round(middle["class"], 1),
        "class_left_out": round(middle["new"], 1),
        "calibrated": round(middle["calibrated"], 1),
    }
    ships = replace(fitted.weights, intervals=intervals)
    tables = format_markdown(errors, summarise_views(rows), summarise_by_library(rows), ships, inside)
    assert "## GEMM, bf16" in tables
    assert [line.split(" | ")[0] for line in tables.splitlines()[4:7]] == ["| a100-sxm-80gb", "| h100-sxm", "| l40s"]
    assert "| gemm half | × 1." in tables


def test_an_interval_holds_the_next_gpu_too():
    steady, wild = np.linspace(0, 0.1, 101), np.linspace(0, 0.5, 101)
    assert compute_unseen_width([steady] * 4) == pytest.approx(0.09 * 5 / 4)
    assert compute_unseen_width([steady]) == pytest.approx(0.09 * 2)
    # No margin for the GPUs themselves: 90 % of the kernels of both, or 80 % of the worst.
    assert compute_measured_width([steady, wild]) == pytest.approx(0.4 * 3 / 2)
    # A dozen kernels of a third GPU count among all, but ask for no width of their own.
    assert compute_measured_width([steady] * 9 + [np.full(11, 1.0)]) == pytest.approx((9 * 0.09 + 1) / 10 * 1.1)
    # 80 % of the worst GPU, and a margin with which the others would have covered three quarters of it.
    # It adds no more than makes the interval 1.6 times as wide.
    assert compute_unseen_width([steady, 2 * steady]) == pytest.approx(0.16 * (0.78 * 0.2) / 0.09)
    assert compute_unseen_width([steady, wild]) == pytest.approx(0.4 + np.log(1.6) / 2)


def test_a_law_measured_on_one_gpu_borrows_how_far_others_may_be():
    """Without its only GPU a fit knows none of that vendor and is off threefold, which weights that have it are not."""
    said = {
        ("gemm half", "base", "a100-sxm-80gb"): 1.1, ("gemm half", "class", "a100-sxm-80gb"): 1.3,
        ("gemm half", "base", "l40s"): 1.1, ("gemm half", "class", "l40s"): 1.3,
        ("conv half", "base", "h100-sxm"): 1.5, ("conv half", "new", "h100-sxm"): 3.0,
    }  # fmt: skip
    scored = [
        {"law": law, "situation": where, "gpu": gpu, "model_us": 100.0 * off,
         "latency_us": 100.0, "shape": i}
        for (law, where, gpu), off in said.items() for i in range(20)
    ]  # fmt: skip
    found = fit_intervals(pl.DataFrame(scored).with_columns(**UNPAIRED))
    own, products = found.widths["conv half"], found.widths["gemm half"]
    # 20 kernels say log 1.5 below, 30 more that are assumed say 0.
    assert found.centres["conv half"] == {"base": pytest.approx(-0.4 * np.log(1.5))}
    assert own["base"] == pytest.approx(0.6 * np.log(1.5) + np.log(1.6) / 2)
    assert own["class"] == pytest.approx(np.hypot(own["base"], products["class"]))
    assert own["new"] == pytest.approx(np.hypot(own["base"], products["new"]))


def test_what_is_not_told_of_the_software_is_in_the_width():
    """Each release is predicted to 1 %; by the library alone they are 20 % off, and the newest, left out, 50 %.

    On which side the next one errs the newest doesn't tell: its interval has no middle of its own.
    """
    row = {"law": "encoder", "gpu": "b200", "model_us": 101.0, "library_us": 120.0, "latency_us": 100.0}
    fitted = [row | {"situation": "base", "shape": i} for i in range(20)]
    newest = [row | {"situation": "new release", "shape": i, "model_us": 150.0} for i in range(20)]
    scored = pl.DataFrame(fitted + newest).with_columns(**{**UNPAIRED, "library_us": pl.col("library_us")})
    found = fit_intervals(scored)
    widths = found.widths["encoder"]
    base = 2 * 0.6 * np.log(1.01)
    assert widths["base"] == pytest.approx(base)
    assert np.hypot(base, widths["library"]) == pytest.approx(2 * 0.6 * np.log(1.2))
    # One release left out says little of the next: as much more as one GPU asks for.
    assert np.hypot(base, widths["new release"]) == pytest.approx(np.log(1.5) + np.log(1.6) / 2)
    assert "new release" not in found.centres["encoder"]
    assert widths["new library"] == widths["new release"]
    assert "engine" not in widths


def test_the_spread_of_releases_is_no_part_of_the_width_for_all():
    """Every kernel is off by a factor of 1.3, half of it in squares because two releases are so far apart."""
    off = np.log(1.3)
    row = {"law": "encoder", "gpu": "b200", "situation": "base", "model_us": 100.0, "engine_us": 130.0}
    scored = pl.DataFrame([row | {"latency_us": 100.0, "shape": i} for i in range(20)])
    known = {**UNPAIRED, "engine_us": pl.col("engine_us"), "engine_spread": pl.lit(off / np.sqrt(2))}
    widths = fit_intervals(scored.with_columns(**known)).widths["encoder"]
    assert widths["engine"] == pytest.approx(2 * 0.6 * off / np.sqrt(2))


def test_an_interval_is_centred_on_what_is_measured():
    """Of 470 kernels on each GPU the middle 90 % take 0.95 to 1.35 times as long, as logarithms -0.05 to 0.3."""
    off = np.interp(np.linspace(0, 1, 470), [0, 0.05, 0.95, 1], [-0.1, -0.05, 0.3, 0.35])
    row = {"law": "encoder", "model_us": 100.0}
    rows = [
        row | {"gpu": gpu, "situation": where, "shape": i, "latency_us": 100 * np.exp(missed)}
        for gpu in ("b200", "h100-sxm") for where in ("base", "new") for i, missed in enumerate(off)
    ]  # fmt: skip
    found = fit_intervals(pl.DataFrame(rows).with_columns(**UNPAIRED))
    centre = 0.125 * 470 / 500
    assert found.centres["encoder"]["base"] == pytest.approx(centre, abs=1e-3)
    assert found.centres["encoder"]["new"] == pytest.approx(centre / 2, abs=1e-3)
    assert found.widths["encoder"]["base"] == pytest.approx(0.175 * 1.25, rel=0.05)
    inside = compute_coverage(pl.DataFrame(rows).with_columns(**UNPAIRED))
    base = inside.filter(gpu="b200", situation="base").row(0, named=True)
    # Both GPUs have the same kernels.
    assert base["kernels"] == 470
    assert base["needed"] == pytest.approx(2 * np.quantile(np.abs(off - centre), 0.9), rel=1e-3)
    assert base["inside"] == pytest.approx(100 - base["below"] - base["above"])
    assert base["below"] <= 5
    assert base["above"] <= 5


def test_an_interval_is_never_narrower_where_less_is_told():
    """By its library alone each kernel is missed by 0.3, without any name by 0.1."""
    row = {"law": "encoder", "gpu": "b200", "situation": "base", "latency_us": 100.0, "model_us": 100.0}
    row |= {"library_us": 100 * np.exp(-0.3), "nothing_us": 100 * np.exp(-0.1)}
    scored = pl.DataFrame([row | {"shape": i} for i in range(20)])
    told = {name: pl.col(name) for name in ("library_us", "nothing_us")}
    widths = fit_intervals(scored.with_columns(**{**UNPAIRED, **told})).widths["encoder"]
    assert widths["nothing"] == widths["library"] > 0


def test_sums_are_inside_where_errors_are_small_and_independent_or_the_interval_counts_them_as_common():
    draw = np.random.default_rng(1)

    def build_rows(log_error):
        row = {"law": "gemm half", "situation": "base", "gpu": "h100-sxm", "model_us": 100.0, "nothing_us": None}
        return pl.DataFrame([row | {"latency_us": 100.0 * np.exp(error)} for error in log_error])

    def measure(log_error):
        weights = Weights({}, intervals={"gemm half": {"base": 0.3}}, shared={"gemm half": {"base": 0.6}})
        return compute_sum_coverage(build_rows(log_error), weights).select("0", "0.6", BY_LAW).row(0)

    assert measure(draw.normal(0, 0.1, 200)) == (100, 100, 100)
    assert measure(np.full(200, 0.16)) == (0, 100, 100)
    assert measure(np.full(200, 0.4)) == (0, 0, 0)


def test_what_a_law_shares_is_what_the_means_of_its_groups_have():
    """Kernels of an H100 are missed by 0.2 + 0.1 and 0.2 - 0.1, of an H200 by -0.2 and as much apart."""
    apart = np.tile([0.1, -0.1], 50)
    row = {"law": "encoder", "situation": "base", "model_us": 100.0}
    rows = [
        row | {"gpu": gpu, "shape": i, "latency_us": 100 * np.exp(shared + one)}
        for gpu, shared in (("h100-sxm", 0.2), ("h200-sxm", -0.2)) for i, one in enumerate(apart)
    ]  # fmt: skip
    scored = pl.DataFrame(rows).with_columns(**UNPAIRED)
    found = fit_shared_fractions(scored, pair_kernels(scored))["encoder"]
    # Two groups of it, three of what is assumed without any.
    shared = (0.2**2 - 0.01 / 99) / (0.2**2 + 0.01)
    assert found["base"] == pytest.approx(np.sqrt((2 * shared + 3 * shared) / 5), rel=1e-6)


def test_laws_that_err_alike_on_each_gpu_are_correlated():
    """Two laws are 0.2 above on one GPU left out and 0.2 below on another, a third is the other way round."""
    off = {"encoder": 0.2, "prefill": 0.2, "norm": -0.2}
    rows = [
        {"law": law, "gpu": gpu, "situation": "new", "model_us": 1.0, "latency_us": float(np.exp(side * missed))}
        for law, missed in off.items() for gpu, side in (("b200", 1), ("l40s", -1)) for _ in range(10)
    ]  # fmt: skip
    scored = pl.DataFrame(rows)
    alike = correlate_laws(scored.filter(pl.col("law") != "norm"))
    assert alike.row(0) == ("new", pytest.approx(1), 2)
    assert correlate_laws(scored).row(0) == ("new", pytest.approx(-1 / 3), 6)


def test_a_gpu_with_far_slower_matrix_units_says_nothing_of_its_siblings():
    fitted = load_weights().laws["gemm fp8"]
    siblings = [fitted.gpu[slug] for slug in ("h100-sxm", "h200-sxm", "h800-sxm")]
    assert "h20" in fitted.gpu
    for name in siblings[0]:
        mean = np.mean([one[name] for one in siblings])
        assert fitted.architecture["9"][name] == pytest.approx(mean, abs=1e-4)


def test_every_law_has_priors_for_its_effects():
    for law in LAWS.values():
        assert set(law.effects) - {"floor"} <= set(law.priors)


def test_many_kernels_of_few_gpus_need_less_margin():
    steady = np.linspace(0, 0.1, 1001)
    assert compute_measured_width([steady]) == pytest.approx(0.09 * 1.25)
    assert compute_measured_width([steady] * 9) == pytest.approx(0.09 * (1 + 1 / 9))
    assert compute_measured_width([steady, np.linspace(0, 0.1, 101)]) == pytest.approx(0.09 * 1.5)
