"""A vendor's only GPU joined to a fit: its own offsets come out, and what the others share stays."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

pytest.importorskip("scipy")

from predictors import load_gpu
from predictors.arrays import Floats
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.hardware import Hardware, derive_hardware, find_supported_dtype
from predictors.laws.law import STREAM
from predictors.training.fit import LawMeasurements
from predictors.training.fit_all import replace_widths
from predictors.training.fit_law import LawData, fit_gpu_alone
from predictors.training.joined import split_joined
from predictors.weights_file import LawConstants, Weights

A100, B60, B580 = (derive_hardware(load_gpu(name)) for name in ("a100-sxm-80gb", "arc-pro-b60", "arc-b580"))


def time_copies(gpu: Hardware, constants: LawConstants) -> LawData:
    rows = pl.DataFrame({"bytes": np.geomspace(1e4, 1e10, 60)})
    rows = prepare_kernels(rows.with_columns(family=pl.lit("elementwise"), dtype=pl.lit("fp32")))
    columns, one = build_law_inputs(rows).to_columns(gpu), np.ones(60)
    time_us: Floats = STREAM.terms(columns, gpu, constants.compute_constants(gpu)).time_us
    return LawData(gpu, columns, one, np.full(60, None), np.zeros(60, dtype=bool), time_us)


def test_a_joined_gpu_has_offsets_of_its_own_and_its_siblings_have_them_too() -> None:
    shared = LawConstants({name: float(np.log(prior[0])) for name, prior in STREAM.priors.items()}, gpu={A100.slug: {}})
    slow = {"floor": float(np.log(3.0)), "memory": float(np.log(0.6))}
    joined = fit_gpu_alone(STREAM, time_copies(B60, LawConstants(shared.base, gpu={B60.slug: slow})), shared)
    assert (joined.base, joined.framework, joined.gpu[A100.slug]) == (shared.base, {}, {})
    usual = shared.compute_constants(A100)
    for gpu in (B60, B580):
        found = joined.compute_constants(gpu)
        assert float(found["floor"]) / float(usual["floor"]) == pytest.approx(3.0, rel=0.1)
        assert float(found["memory"]) / float(usual["memory"]) == pytest.approx(0.6, rel=0.05)
    assert joined.compute_constants(A100) == usual


def test_only_a_vendor_that_others_surround_is_joined() -> None:
    table = pl.DataFrame({"source": ["graph"]})
    nvidia, intel = LawMeasurements(A100.slug, table), LawMeasurements(B60.slug, table)
    assert split_joined([nvidia, intel]) == ([nvidia], [intel])
    assert split_joined([intel]) == ([intel], [])


def test_widths_of_others_are_kept() -> None:
    fitted = Weights({}, intervals={"a": {"base": 2.0}, "a on intel": {"base": 3.0}})
    known = Weights({}, intervals={"a": {"base": 1.0}})
    assert replace_widths(fitted, known).intervals == {"a": {"base": 1.0}, "a on intel": {"base": 3.0}}


def test_intel_gpus_read_fp8_as_it_is_and_compute_it_in_16_bits() -> None:
    assert [find_supported_dtype("fp8", gpu.gpu) for gpu in (B60, A100)] == ["fp8", "bf16"]
    assert B60.get_tflops("fp8") == B60.get_tflops("bf16")
