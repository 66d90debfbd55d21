"""A release is a place within its engine: kernels of others are taken for those of a newer one of the fit."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from predictors.columns import build_law_inputs, prepare_kernels
from predictors.corrections import BOARD_FEATURES, SymmetricTrees, compute_features
from predictors.fitted_kernels import FittedKernels, join_kernels
from predictors.gpu_names import load_gpu
from predictors.hardware import derive_hardware
from predictors.kernel_identity import parse_release
from predictors.laws.law import LAWS
from predictors.model import compute_software_spread, evaluate_law
from predictors.weights_file import LawConstants, Weights

B200 = derive_hardware(load_gpu("b200"))
MEASURED = {"decode/trtllm/trtllm": [10289.0, 10299.2], "decode/vllm/fa2": [1900.0], "decode/vllm/triton": [2400.0]}


@pytest.mark.parametrize(
    ("engine", "library", "release", "placed"),
    [
        ("trtllm", "trtllm", 10289.0, 10289.0),
        ("trtllm", "trtllm", 10290.0, 10299.2),
        ("trtllm", "trtllm", 10000.0, 10299.2),
        ("trtllm", "trtllm", 10400.0, 10299.2),
        ("vllm", "triton", 1900.0, 2400.0),
        ("vllm", "vllm", 1900.0, 1900.0),
        ("vllm", "fa4", 2000.0, 2400.0),
        ("sglang", "triton", 510.0, 510.0),
    ],
)
def test_a_release_that_was_not_fitted_is_taken_for_a_newer_one(
    engine: str, library: str, release: float, placed: float
) -> None:
    assert FittedKernels(MEASURED).place("decode", engine, library, release) == placed


def test_kernels_of_several_gpus_are_joined() -> None:
    both = join_kernels([{"decode/vllm/fa2": [1900.0]}, {"decode/vllm/fa2": [1400.0], "decode/vllm/fa3": [2400.0]}])
    assert both.releases == {"decode/vllm/fa2": [1400.0, 1900.0], "decode/vllm/fa3": [2400.0]}
    assert both.of_engine == {"decode/vllm": [1400.0, 1900.0, 2400.0]}


def test_a_gpu_without_measurements_of_its_own_has_its_architectures() -> None:
    fitted = LawConstants({}, releases={"h100-sxm": {"decode/vllm/fa3": [2400.0]}, "b200": MEASURED})
    assert fitted.find_kernels(B200).releases == MEASURED
    assert fitted.find_kernels(derive_hardware(load_gpu("h200-sxm"))).releases == {"decode/vllm/fa3": [2400.0]}
    a100 = fitted.find_kernels(derive_hardware(load_gpu("a100-sxm-80gb")))
    assert a100.of_engine["decode/vllm"] == [1900.0, 2400.0]


def test_a_prediction_between_two_releases_is_the_newer_ones() -> None:
    """Trees that know two releases apart by a threshold half-way are told the newer one from just after the older."""
    row = {"family": "attention", "dtype": "bf16", "heads": 32, "head_dim": 128, "batch": 8, "q_len": 1, "kv_len": 4096}
    versions = ["1.3.0rc10", "1.3.0rc12", "1.3.0rc20", "1.4.0", None]
    told = prepare_kernels(
        pl.DataFrame([row | {"framework": "trtllm", "version": version} for version in versions]), B200
    )
    inputs = build_law_inputs(told)
    priors = {name: float(np.log(prior[0])) for name, prior in LAWS["decode"].priors.items()}
    older, newer = (parse_release(version) or 0.0 for version in ("1.3.0rc10", "1.3.0rc20"))
    law = LawConstants(priors, gpu={"b200": {}}, releases={"b200": {"decode/trtllm/trtllm": [older, newer]}})
    terms, _ = evaluate_law(inputs, "decode", B200, Weights({"decode": law}))
    features = compute_features("decode", inputs.frameworks, inputs.to_columns(B200), terms, B200)
    trees = SymmetricTrees(
        np.array([[len(features) - BOARD_FEATURES - 1]], dtype=np.int16),
        np.array([[(older + newer) / 2]], dtype=np.float32),
        np.array([[1.0, 0.0]], dtype=np.float32),
    )
    weights = Weights({"decode": law}, {"10/decode": trees})
    _, time_us = evaluate_law(inputs, "decode", B200, weights)
    assert time_us[1] == time_us[2] == time_us[3]
    assert time_us[0] == time_us[4] > time_us[2]
    spread = compute_software_spread(inputs, "decode", B200, weights)
    apart = np.log(time_us[0] / time_us[2])
    assert spread == pytest.approx([0.0, apart, 0.0, 0.0, apart])


@pytest.mark.parametrize(
    ("engine", "library", "release", "like"),
    [
        ("trtllm", "trtllm", 10290.0, [("trtllm", 10289.0), ("trtllm", 10299.2)]),
        ("trtllm", "trtllm", -1.0, [("trtllm", 10289.0), ("trtllm", 10299.2)]),
        ("vllm", "vllm", -1.0, [("fa2", 1900.0), ("triton", 2400.0)]),
        ("vllm", "vllm", 2400.0, [("triton", 2400.0)]),
        ("vllm", "triton", -1.0, [("triton", 2400.0)]),
        ("trtllm", "trtllm", 10400.0, [("trtllm", 10299.2)]),
        ("sglang", "sglang", -1.0, []),
    ],
)
def test_the_fitted_kernels_that_a_kernel_may_be(
    engine: str, library: str, release: float, like: list[tuple[str, float]]
) -> None:
    assert FittedKernels(MEASURED).list_like("decode", engine, library, release) == like
