"""AITER's tuned kernels, as its repository and a folder of tables made from it keep them."""

from __future__ import annotations

import polars as pl
import pytest

from predictors.training.aiter import TUNED
from predictors.training.calibration import build_min_scored_us
from predictors.training.datasets import load_datasets
from predictors.training.fit import load_measurements

BLOCKS = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio"
ROWS = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio"
FP4 = "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio"
EXPERTS = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,us,kernelName1"
)


@pytest.fixture
def write(tmp_path):
    def to(name, *lines):
        path = tmp_path / "aiter" / "aiter" / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")

    return to


def test_products_of_a_checkout(tmp_path, write):
    write(
        "model_configs/a8w8_blockscale_tuned_gemm_ds_v3.csv", BLOCKS,
        "gfx942,304,64,3072,1536,ck,8,0,6.5,a8w8_blockscale_1x128x128,1.4,714.4,0.0",
        "gfx942,80,64,3072,1536,ck,8,0,16.5,a8w8_blockscale_1x128x128,1.4,714.4,0.0",
    )  # fmt: skip
    write(
        "a8w8_bpreshuffle_tuned_gemm.csv", ROWS,
        "gfx950,256,128,128,5120,torch.int8,asm,0,8,7.25,_ZN5aiter41I8gemm,22.9,183.5,0.1",
        "gfx950,256,128,128,5120,torch.float8_e4m3fn,flydsl,0,8,5.5,flydsl_gemm,22.9,183.5,0.1",
    )  # fmt: skip
    write("a4w4_blockscale_tuned_gemm.csv", FP4, "gfx950,256,1,512,4096,21,0,5.4,_ZN5aiter41f4gemm,0.8,194.5,0.0")
    write("a8w8_blockscale_untuned_gemm.csv", "M,N,K", "1,2,3")
    rows = load_datasets(tmp_path)
    assert set(rows["source"]) == {"tuned"}
    found = rows.select("gpu", "dtype", "framework", "batch", "m", "n", "k", "latency_us").sort("latency_us")
    assert found.rows() == [
        ("mi355x", "mxfp4", "aiter", 1, 1, 512, 4096, 5.4),
        ("mi355x", "fp8", "flydsl", 1, 128, 128, 5120, 5.5),
        ("mi300x", "fp8_block", "ck", 1, 64, 3072, 1536, 6.5),
        ("mi355x", "int8", "aiter", 1, 128, 128, 5120, 7.25),
    ]


def test_experts_of_a_checkout(tmp_path, write):
    fp8 = "torch.bfloat16,torch.float8_e4m3fnuz,torch.float8_e4m3fnuz,QuantType.per_1x128"
    write(
        "tuned_fmoe.csv", EXPERTS,
        f"304,4,7168,256,257,9,ActivationType.Silu,{fp8},1,67.5,moe_ck2stages_gemm1",
        f"304,4,7168,256,257,9,ActivationType.Silu,{fp8},0,50.0,moe_ck2stages_gemm1",
    )  # fmt: skip
    rows = load_datasets(tmp_path)
    columns = ("gpu", "dtype", "framework", "tokens", "hidden", "inter", "experts", "topk", "latency_us")
    assert rows.select(columns).rows() == [("mi300x", "fp8_block", "ck", 4, 7168, 256, 257, 9, 67.5)]


def test_the_table_of_products(tmp_path):
    (tmp_path / "aiter").mkdir()
    table = pl.DataFrame({
        "gpu": ["mi355x"] * 2, "scheme": ["fp8_row", "bf16"], "preshuffled": [True, False], "batch": [1, 1],
        "m": [16, 32], "n": [4096, 512], "k": [7168, 128], "us": [7.5, 3.25], "library": [None, "torch"],
        "kernel": ["a8w8_rowwise_256", "native"], "split_k": [0, 0],
    })  # fmt: skip
    table.write_parquet(tmp_path / "aiter" / "gemm.parquet")
    rows = load_datasets(tmp_path).sort("m")
    assert rows.select("dtype", "framework", "m", "n", "k", "latency_us").rows() == [
        ("fp8", "ck", 16, 4096, 7168, 7.5), ("bf16", "hipblaslt", 32, 512, 128, 3.25),
    ]  # fmt: skip


def test_a_weight_is_held_out_at_every_number_of_tokens(tmp_path, write):
    shapes = [(m, n) for n in range(128, 128 * 40, 128) for m in (1, 7, 64, 4096)]
    lines = (f"gfx942,304,{m},{n},1536,ck,8,0,650.5,a8w8_blockscale,1.4,714.4,0.0" for m, n in shapes)
    write("a8w8_blockscale_tuned_gemm.csv", BLOCKS, *lines)
    (part,) = load_measurements([tmp_path])["gemm fp8_block"]
    test, train = (part.select_shapes(test=held).table for held in (True, False))
    assert test.height + train.height == len(shapes)
    assert test.height > 0
    assert not set(test["n"]) & set(train["n"])


def test_tuners_rows_are_scored_from_10_us_on():
    rows = pl.DataFrame({"source": [TUNED] * 2, "us": [9.0, 11.0]})
    assert rows.filter(pl.col("us") > build_min_scored_us(0.0))["us"].to_list() == [11.0]
