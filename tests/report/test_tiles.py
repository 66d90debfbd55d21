"""Tiles of products, as their names tell them and as laws choose them on a target."""

import pytest

import tracekit as tk
from tracekit.reporting import build_prediction_report
from tracekit.reporting.sections.kernels import KernelTime, Tiles
from tracekit.testing import TraceBuilder

NAME = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"


def build_kernels(name: str = NAME, **options: object) -> list[KernelTime]:
    """Return a product of 4096 in 1,024 blocks, 9.5 waves of an A100's 108 SMs, and an addition behind it."""
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 20, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
    builder.kernel(name, 20, 900, launch=5, grid=[32, 32, 1])
    builder.op("aten::add", 930, 20, dims=[[4096, 4096], [4096, 4096], []], types=["float", "float", "Scalar"])
    builder.kernel("vectorized_elementwise_kernel", 960, 150, launch=940)
    return list(build_prediction_report(tk.predict(builder.load(), gpu="h100-sxm", **options)).kernels)


def test_a_product_is_shown_as_it_is_cut_here_and_there() -> None:
    product, addition = build_kernels()
    assert product.tiles == Tiles(128, 128, 1, pytest.approx(1024 / 108))
    (there,) = product.predicted_tiles
    assert there == Tiles(128, 256, 1, pytest.approx(512 / 132), there.kept_ratio)
    assert 1 < there.kept_ratio < 2
    assert (addition.tiles, addition.predicted_tiles) == (None, (None,))


def test_parts_of_k_are_unknown_where_a_name_tells_only_that_there_are_some() -> None:
    product, _ = build_kernels("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_splitK_stages_32x5_nn")
    assert product.tiles is not None
    assert product.tiles.split_k is None


def test_products_of_another_size_have_no_tiles_there() -> None:
    product, _ = build_kernels(batch=2)
    assert product.tiles is not None
    assert product.predicted_tiles == (None,)
