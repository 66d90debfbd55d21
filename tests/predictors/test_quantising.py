"""Products of serving engines whose benchmarks quantise the input, and the quantising alone."""

from __future__ import annotations

import math

import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.hardware import derive_hardware
from predictors.laws.law import LAWS, QUANTISE
from predictors.model import QUANTISE_LAW, evaluate_kernels, split_by_law
from predictors.quantising import ONE_PASS, PER_TENSOR
from predictors.weights_file import LawConstants, Weights

B200 = derive_hardware(load_gpu("b200"))
PRIORS = Weights({"gemm fp8": LawConstants({name: math.log(at) for name, (at, _) in LAWS["gemm fp8"].priors.items()})})


def time_us(**columns: object) -> float:
    row = {"family": "gemm", "dtype": "fp8", "m": 4, "n": 2560, "k": 8192} | columns
    table = prepare_kernels(pl.DataFrame({name: [value] for name, value in row.items()}), B200)
    return float(evaluate_kernels(split_by_law(table), B200, PRIORS).time_us[0])


def quantise_us(rows: int, cols: int, part: str | None) -> float:
    passes = 2 if part == PER_TENSOR else 1
    row = {"family": "quantise", "dtype": "fp8", "rows": rows, "cols": cols, "part": part}
    row |= {"bytes": rows * cols * (2 * passes + 1)}
    table = prepare_kernels(
        pl.DataFrame({name: [value] for name, value in row.items()}, schema_overrides={"part": pl.String})
    )
    return float(evaluate_kernels(split_by_law(table), B200, PRIORS).time_us[0])


@pytest.mark.parametrize(("engine", "part"), [("trtllm", PER_TENSOR), ("sglang", ONE_PASS), ("vllm", ONE_PASS)])
def test_a_benchmarks_product_takes_the_quantising_on_top(engine: str, part: str | None):
    alone_us, in_job_us = time_us(framework=engine), time_us(framework=engine, in_job=True)
    assert alone_us - in_job_us == pytest.approx(quantise_us(4, 8192, part))


@pytest.mark.parametrize("columns", [{"dtype": "bf16"}, {"batch": 128}, {"framework": None}])
def test_wide_batched_and_unserved_products_contain_none(columns: dict[str, object]):
    row = {"framework": "trtllm"} | columns
    assert time_us(**row, in_job=True) >= time_us(**row)


def test_the_scale_of_a_whole_input_takes_kernels_of_its_own():
    """Four floors instead of one: its prior is three beside the cast's."""
    rows = pl.DataFrame(
        {"family": "quantise", "dtype": "fp8", "rows": 4, "cols": 8192, "part": [PER_TENSOR, ONE_PASS], "bytes": 98304}
    )
    inputs = build_law_inputs(prepare_kernels(rows, B200))
    constants = {name: at for name, (at, _) in QUANTISE.priors.items()}
    floor_us = QUANTISE.terms(inputs.to_columns(B200), B200, constants).floor_us
    assert floor_us[0] == pytest.approx(4 * floor_us[1])
    assert floor_us[1] == pytest.approx(3500 / B200.clock_mhz)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_block", "nvfp4"])
@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_a_product_takes_no_longer_in_a_job_than_in_its_engines_benchmark(engine: str, dtype: str):
    rows = pl.DataFrame({"family": "gemm", "dtype": dtype, "m": [1, 4, 64, 4096], "n": 2560, "k": 8192})
    rows = rows.with_columns(framework=pl.lit(engine))
    alone, in_job = (predict(rows.with_columns(in_job=told), "b200")["time_us"] for told in (False, True))
    assert (in_job <= alone).all()


def test_the_law_has_its_own_family():
    assert prepare_kernels(pl.DataFrame({"family": ["quantise"], "bytes": [1.0]}))["law"].item() == QUANTISE_LAW
