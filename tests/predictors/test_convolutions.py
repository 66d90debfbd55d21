"""Convolutions: what the keys of MIOpen's find databases mean, and the laws of dense and grouped ones."""

from __future__ import annotations

import bz2
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from predictors import load_gpu, predict
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.corrections import compute_features
from predictors.hardware import derive_hardware
from predictors.laws.law import LAWS
from predictors.laws.terms import LatencyTerms
from predictors.training import miopen
from predictors.training.datasets import load_datasets
from predictors.training.fit import TEST_FOLDS, load_measurements
from predictors.weights_file import load_hardware

FORWARD = "192-17-17-3x3-320-9-9-64-1x1-2x2-1x1-0-NCHW-BF16-F"
SOLVERS = "GemmFwdRest:2.41824,279936,Gemm;Fast:0.0,0,Gemm;ConvHipImplicitGemmForwardV4R5Xdlops:0.193924,0,Igemm"


def write_database(folder: Path, *lines: str, name: str = "gfx90a68.HIP.fdb.txt.bz2") -> Path:
    (folder / "src/kernels").mkdir(parents=True, exist_ok=True)
    (folder / "src/kernels" / name).write_bytes(bz2.compress("\n".join(lines).encode()))
    return folder


def read(folder: Path, *columns: str) -> list[tuple[object, ...]]:
    return pl.concat(list(miopen.load(folder))).select(columns).rows()


def test_the_fastest_solver_that_took_any_time_counts(tmp_path):
    write_database(tmp_path, f"{FORWARD}={SOLVERS}", f"{FORWARD}_g2=Fast:0.0,0,Gemm")
    assert read(tmp_path, "gpu", "dtype", "direction", "latency_us") == [
        ("mi210", "bf16", "forward", pytest.approx(193.924))
    ]


def test_a_forward_pass_is_the_product_of_its_windows(tmp_path):
    write_database(tmp_path, f"{FORWARD}={SOLVERS}")
    moved = 2 * (64 * 192 * 17 * 17 + 64 * 320 * 9 * 9 + 320 * 192 * 9)
    assert read(tmp_path, "batch", "m", "n", "k", "channels", "height", "width", "bytes") == [
        (1, 64 * 9 * 9, 320, 192 * 9, 192, 9, 9, moved)
    ]


def test_the_input_of_a_gradient_is_the_gradient_of_the_output(tmp_path):
    """7x7 windows at a stride of 2 over 224x224 images of 3 channels: 64 filters, 112x112."""
    key = "64-112-112-7x7-3-224-224-8-3x3-2x2-1x1-0-NCHW-FP32"
    write_database(tmp_path, f"{key}-B=A:1.0,0,x", f"{key}-W=A:1.0,0,x")
    pixels, depth = 8 * 112 * 112, 3 * 49
    moved = 4 * (8 * 3 * 224 * 224 + pixels * 64 + 64 * depth)
    assert read(tmp_path, "direction", "m", "n", "k", "channels", "height", "bytes") == [
        ("dgrad", pixels, depth, 64, 3, 112, moved),
        ("wgrad", 64, depth, pixels, 3, 112, moved),
    ]


def test_groups_divide_filters_and_channels(tmp_path):
    write_database(tmp_path, "64-14-14-3x3-128-14-14-4-1x1-1x1-1x1-0-NCHW-FP16-F_g32=A:1.0,0,x")
    assert read(tmp_path, "batch", "n", "k", "channels") == [(32, 4, 2 * 9, 2)]


@pytest.mark.parametrize(
    "line",
    [
        "192-1-17-17-1x3x3-320-1-9-9-64-0x1x1-1x2x2-1x1x1-0-NCDHW-FP32-F=A:1.0,0,x",
        "192-17-17-3x3-320-9-9-64-1x1-2x2-1x1-0-NHWC-NHWC-NHWC-FP32-F=A:1.0,0,x",
        "192-17-17-3x3-320-9-9-64-1x1-2x2-1x1-0-NCHW-INT8-F=A:1.0,0,x",
        "not a key",
    ],
)
def test_other_convolutions_are_left_out(tmp_path, line):
    write_database(tmp_path, line, f"{FORWARD}={SOLVERS}")
    assert len(read(tmp_path, "m")) == 1


def test_a_table_says_what_the_database_does(tmp_path):
    numbers = dict.fromkeys(("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
    row = {"gpu": "mi210", "direction": "backward_data", "dtype": "fp32", "layout": "NCHW", "batch": 4, "channels": 64,
           "height": 14, "width": 14, "filters": 32, "kernel_h": 3, "kernel_w": 3, "groups": 1, "us": 50.0,
           **numbers}  # fmt: skip
    (tmp_path / "miopen").mkdir()
    pl.DataFrame([row]).write_parquet(tmp_path / "miopen" / "conv.parquet")
    key = "64-14-14-3x3-32-14-14-4-1x1-1x1-1x1-0-NCHW-FP32-B=A:0.05,0,x"
    table, database = (load_datasets(path) for path in (tmp_path, write_database(tmp_path / "MIOpen", key)))
    assert table.drop("latency_us").equals(database.drop("latency_us"))
    assert table["latency_us"].to_list() == pytest.approx(database["latency_us"].to_list())


CONVOLUTION = {"family": "conv", "dtype": "fp16", "direction": "forward", "m": 32 * 56 * 56, "n": 64, "k": 64 * 9,
               "channels": 64, "height": 56, "width": 56,
               "bytes": 2 * (2 * 32 * 56 * 56 * 64 + 64 * 64 * 9)}  # fmt: skip
DEPTHWISE = CONVOLUTION | {"batch": 64, "n": 1, "k": 9, "channels": 1, "bytes": 2 * (2 * 32 * 56 * 56 * 64 + 64 * 9)}


GROUPED = CONVOLUTION | {"batch": 32, "n": 4, "k": 36, "channels": 4, "bytes": 2 * 2 * 32 * 56 * 56 * 128}
UNEVEN = CONVOLUTION | {"batch": 18, "n": 24, "k": 216, "channels": 24, "bytes": 2 * 2 * 32 * 56 * 56 * 432}


@pytest.mark.parametrize(
    ("gpu", "row", "law"),
    [
        ("mi300x", CONVOLUTION, "miopen half"),
        ("mi300x", CONVOLUTION | {"dtype": "tf32"}, "miopen fp32"),
        ("mi300x", DEPTHWISE, "miopen grouped"),
        ("h100-sxm", CONVOLUTION, "conv half"),
        ("h100-sxm", GROUPED, "grouped"),
        ("h100-sxm", DEPTHWISE, "elementwise"),
        ("h100-sxm", DEPTHWISE | {"direction": "dgrad", "n": 9, "k": 1}, "depthwise"),
    ],
)
def test_the_law_of_a_convolution(gpu, row, law):
    assert prepare_kernels(pl.DataFrame([row]), load_hardware(gpu))["law"].to_list() == [law]


def test_one_table_serves_both_vendors():
    table = pl.DataFrame([CONVOLUTION | {"dtype": "fp32", "winograd": True}])
    assert predict(table, "v100-pcie-32gb")["time_us"][0] != predict(table, "mi100")["time_us"][0]


def test_a_grouped_convolution_takes_the_quicker_way():
    """Of 64 groups of one filter each a tile of a product is nearly empty: going over the windows is quicker."""
    gpu = derive_hardware(load_gpu("mi210"))
    inputs = build_law_inputs(prepare_kernels(pl.DataFrame([DEPTHWISE]), gpu))
    law = LAWS["miopen grouped"]
    constants = {name: prior for name, (prior, _) in law.priors.items()}
    quick, slow = (
        law.evaluate(inputs.to_columns(gpu), inputs.share, gpu, constants | {"direct": share}) for share in (0.2, 1e-6)
    )
    loads_us = DEPTHWISE["bytes"] / (64 * gpu.sms * gpu.clock_mhz * 0.06)
    flops = 2 * 64 * 32 * 56 * 56 * 9
    assert quick.compute_us[0] == pytest.approx(flops / (0.2 * gpu.vector_tflops * 1e6) + loads_us)
    assert quick.time_us[0] < slow.time_us[0]


def test_the_ratio_of_the_images_tells_the_stride():
    """Images of 112x112 from images of 224x224: four pixels in for one out, in each pass."""
    images, filters, channels = 8, 64, 32
    pixels, depth = images * 112 * 112, channels * 9
    moved = 2 * (images * channels * 224 * 224 + pixels * filters + filters * depth)
    sizes = {"forward": (pixels, filters, depth), "dgrad": (pixels, depth, filters), "wgrad": (filters, depth, pixels)}
    rows = [
        {"family": "conv", "dtype": "fp16", "direction": direction, "m": m, "n": n, "k": k, "channels": channels,
         "height": 112, "width": 112, "bytes": moved}
        for direction, (m, n, k) in sizes.items()
    ]  # fmt: skip
    gpu, law = load_hardware("mi210"), LAWS["miopen half"]
    inputs = build_law_inputs(prepare_kernels(pl.DataFrame(rows), gpu))
    columns = inputs.to_columns(gpu)
    constants = {name: prior for name, (prior, _) in law.priors.items()}
    features = compute_features("miopen half", None, columns, law.evaluate(columns, inputs.share, gpu, constants), gpu)
    stride = [row for row in features if np.allclose(row, np.log(4), atol=1e-5)]
    assert len(stride) == 1


def test_a_weight_is_in_the_fit_or_out_of_it(tmp_path):
    def key(images: int, side: int, passed: str) -> str:
        c, k = (128, 96) if passed == "F" else (96, 128)
        return f"{c}-{side}-{side}-3x3-{k}-{side}-{side}-{images}-1x1-1x1-1x1-0-NCHW-FP32-{passed}=A:9.0,0,x"

    keys = [key(images, side, passed) for images in (1, 8, 32) for side in (7, 14) for passed in "FBW"]
    others = [f"64-14-14-1x1-{k}-14-14-8-0x0-1x1-1x1-0-NCHW-FP32-F=A:9.0,0,x" for k in range(8, 512, 8)]
    (part,) = load_measurements([write_database(tmp_path, *keys, *others)])["miopen fp32"]
    of_weight = part.table.filter(pl.col("channels") == 128)
    assert of_weight.height == len(keys)
    assert of_weight.select((pl.col("fold") % TEST_FOLDS).n_unique()).item() == 1
    assert of_weight["shape"].n_unique() == len(keys)
    assert 0 < part.select_shapes(test=True).table.height < part.table.height / 2


def compute_terms(row: dict[str, object], law: str) -> LatencyTerms:
    gpu = load_hardware("rtx-3090")
    inputs = build_law_inputs(prepare_kernels(pl.DataFrame([row]), gpu))
    constants = {name: prior for name, (prior, _) in LAWS[law].priors.items()}
    return LAWS[law].evaluate(inputs.to_columns(gpu), inputs.share, gpu, constants)


def test_groups_of_a_power_of_two_have_kernels_of_their_own():
    gpu, flops = load_hardware("rtx-3090"), 2 * 32 * 32 * 56 * 56 * 4 * 36
    rate = gpu.get_tflops("fp16") * 1e6
    assert compute_terms(GROUPED, "grouped").compute_us[0] == pytest.approx(flops / (0.8 * rate))
    uneven = 2 * 18 * 32 * 56 * 56 * 24 * 216
    assert compute_terms(UNEVEN, "grouped").compute_us[0] == pytest.approx(uneven / (0.65 * 24 / 128 * rate))


@pytest.mark.parametrize("channels_first", [True, None])
def test_gradients_of_channels_first_take_as_long_as_the_forward_pass(channels_first):
    gradient = UNEVEN | {"direction": "dgrad", "n": 216, "k": 24, "channels_first": channels_first}
    forward, backward = compute_terms(UNEVEN, "grouped"), compute_terms(gradient, "grouped")
    assert backward.compute_us[0] == pytest.approx(forward.compute_us[0])


def test_gradients_of_channels_last_have_kernels_for_few_groups_only():
    rate = load_hardware("rtx-3090").vector_tflops * 1e6
    gradient = {"direction": "dgrad", "channels_first": False}
    uneven = compute_terms(UNEVEN | gradient | {"n": 216, "k": 24}, "grouped")
    assert uneven.compute_us[0] == pytest.approx(2 * 18 * 32 * 56 * 56 * 24 * 216 / (0.05 * rate))
    even = GROUPED | gradient | {"n": 36, "k": 4}
    many, few = compute_terms(even, "grouped"), compute_terms(even | {"batch": 18}, "grouped")
    assert few.compute_us[0] > 5 * many.compute_us[0]


def test_a_depthwise_gradient_goes_over_its_images_several_times():
    gradient = DEPTHWISE | {"direction": "dgrad", "n": 9, "k": 1}
    once, often = compute_terms(DEPTHWISE, "elementwise"), compute_terms(gradient, "depthwise")
    assert often.memory_us[0] == pytest.approx(4.5 * once.memory_us[0])


def test_times_that_only_whole_jobs_tell_have_wide_intervals():
    wide = predict(pl.DataFrame([UNEVEN]), "rtx-3090").row(0, named=True)
    assert wide["high_us"] / wide["time_us"] == pytest.approx(2.5)
