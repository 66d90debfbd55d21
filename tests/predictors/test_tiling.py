"""Tiles that laws choose for products, as blocks over SMs worked out by hand."""

import numpy as np
import polars as pl
import pytest

from predictors import Batch, load_gpu
from predictors.hardware import derive_hardware
from predictors.laws.gemm import GEMM_TILES

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
    cut = {"tile_m": 128, "tile_n": 256, "split_k": 1, "waves": pytest.approx(512 / 132)}
    assert large == cut | {"kept_ratio": None}
    assert narrow["tile_m"] == 16
    assert deep["split_k"] >= 8
    assert list_tiles("t4", PRODUCTS["large"]) != [large]


def test_other_kernels_have_no_tiles() -> None:
    rows = Batch(pl.DataFrame({"family": ["norm", "gemm"], "dtype": "bf16", "rows": [10, None], "cols": [1000, None]}))
    assert rows.get_tiles("h100-sxm").null_count().row(0) == (2, 2, 2, 2, 2)


def test_repeats_have_the_tiles_of_their_kernel() -> None:
    first, other, again = list_tiles("h100-sxm", PRODUCTS["large"], PRODUCTS["batched"], PRODUCTS["large"])
    assert first == again != other


@pytest.mark.parametrize("gpu", ["h100-sxm", "t4"])
def test_a_traced_tile_costs_what_the_best_one_saves(gpu: str) -> None:
    """The law's own choice costs nothing, a narrower tile something, one that it doesn't try isn't judged."""
    (best,) = list_tiles(gpu, PRODUCTS["large"])
    chosen = {"tile_m": best["tile_m"], "tile_n": best["tile_n"]}
    tiles = (chosen, {"tile_m": 16, "tile_n": 64}, {"tile_m": 24, "tile_n": 24})
    kept, narrow, other = (list_tiles(gpu, PRODUCTS["large"] | tile)[0]["kept_ratio"] for tile in tiles)
    assert kept == pytest.approx(1)
    assert narrow > 1.01
    assert other is None


ATTENTION = {"heads": 16, "kv_heads": 4, "head_dim": 128, "causal": True, "batch": 4}


def list_attention(**sizes: object) -> dict[str, object]:
    table = pl.DataFrame([{"family": "attention", "dtype": "bf16"} | ATTENTION | sizes])
    return Batch(table).get_tiles("h100-sxm").row(0, named=True)


def test_attention_is_cut_into_blocks_of_queries() -> None:
    """4 x 16 heads in 8 blocks of 128 queries are 512: 3.9 waves."""
    found = list_attention(q_len=1024, kv_len=1024)
    assert found == {
        "tile_m": 128, "tile_n": None, "split_k": 1, "waves": pytest.approx(512 / 132), "kept_ratio": None
    }  # fmt: skip
    assert list_attention(q_len=1024, kv_len=1024, framework="memeff", paged=False)["tile_m"] == 64


def test_decoding_is_cut_into_parts_of_the_keys() -> None:
    """4 x 4 heads, each of 8,192 keys in 32 parts; 4 query heads of each together."""
    found = list_attention(q_len=1, kv_len=8192)
    assert (found["tile_m"], found["split_k"]) == (4, 32)
    assert found["waves"] == pytest.approx(4 * 4 * 32 / 132)


@pytest.mark.parametrize(("tokens", "rows"), [(8, (16,)), (16384, (64, 128))])
def test_experts_are_cut_by_their_tokens(tokens: int, rows: tuple[int, ...]) -> None:
    experts = {"tokens": tokens, "hidden": 2048, "inter": 768, "topk": 8, "experts": 128}
    found = Batch(pl.DataFrame([{"family": "moe", "dtype": "bf16"} | experts])).get_tiles("h100-sxm")
    assert found["tile_m"][0] in rows
    assert found["tile_n"][0] == 128
    assert found["waves"][0] > 0
