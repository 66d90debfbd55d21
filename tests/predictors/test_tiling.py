"""Tiles that laws choose for products, as blocks over SMs worked out by hand."""

import numpy as np
import polars as pl
import pytest

from predictors import Batch, load_gpu
from predictors.hardware import derive_hardware
from predictors.laws.gemm import GEMM_TILES, K_SPLITS

PRODUCTS = {
    "large": {"m": 4096, "n": 4096, "k": 4096},
    "of few rows": {"m": 16, "n": 4096, "k": 4096},
    "deep and small": {"m": 128, "n": 128, "k": 65536},
    "batched": {"m": 512, "n": 512, "k": 64, "batch": 48},
}


def list_tiles(gpu: str, *products: dict[str, object], dtype: str = "bf16") -> list[dict[str, object]]:
    table = pl.DataFrame([{"family": "gemm", "dtype": dtype} | one for one in products])
    return Batch(table).get_tiles(gpu).to_dicts()


@pytest.mark.parametrize("gpu", ["h100-sxm", "a100-sxm-80gb", "t4", "mi300x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_waves_are_the_blocks_over_the_sms(gpu: str, dtype: str, product: str) -> None:
    size = PRODUCTS[product]
    (found,) = list_tiles(gpu, size, dtype=dtype)
    assert (found["tile_m"], found["tile_n"]) in GEMM_TILES
    blocks = size.get("batch", 1) * np.ceil(size["m"] / found["tile_m"]) * np.ceil(size["n"] / found["tile_n"])
    assert found["waves"] == pytest.approx(blocks * found["split_k"] / derive_hardware(load_gpu(gpu)).sms)


def test_a_product_is_cut_for_the_gpu() -> None:
    """4096 x 4096 in tiles of 128 x 256 are 512 blocks: 3.9 waves of 132 SMs. Few, deep blocks share k."""
    large, narrow, deep = list_tiles(
        "h100-sxm", *(PRODUCTS[name] for name in ("large", "of few rows", "deep and small"))
    )
    assert large == {"tile_m": 128, "tile_n": 256, "split_k": 1, "waves": pytest.approx(512 / 132)}
    assert narrow["tile_m"] == 16
    assert deep["split_k"] == max(K_SPLITS)
    assert list_tiles("t4", PRODUCTS["large"]) != [large]


def test_other_kernels_have_no_tiles() -> None:
    rows = Batch(pl.DataFrame({"family": ["norm", "gemm"], "dtype": "bf16", "rows": [10, None], "cols": [1000, None]}))
    assert rows.get_tiles("h100-sxm").null_count().row(0) == (2, 2, 2, 2)


def test_repeats_have_the_tiles_of_their_kernel() -> None:
    first, other, again = list_tiles("h100-sxm", PRODUCTS["large"], PRODUCTS["batched"], PRODUCTS["large"])
    assert first == again != other
