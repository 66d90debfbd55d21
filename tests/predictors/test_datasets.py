"""Measurements as the public sources keep them: a checkout of theirs is read as it is."""

from __future__ import annotations

import zipfile
from pathlib import Path

import polars as pl
import pytest

from predictors.columns import prepare_kernels
from predictors.quantising import ONE_PASS
from predictors.training.__main__ import main
from predictors.training.datasets import load_datasets
from predictors.training.physics import find_impossible
from predictors.training.quantising import SHORTEST_US
from predictors.training.traces import TRACES_TABLE
from predictors.weights_file import load_hardware

NAMES = "framework,version,device,op_name,kernel_source"
SYSTEMS = "src/aiconfigurator/systems/data"
ATTENTION = "batch_size,isl,num_heads,num_key_value_heads,head_dim,beam_width,attn_dtype,kv_cache_dtype,step,latency"
EXPERTS = "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,latency"


def write(folder: Path, path: str, *lines: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text("\n".join(lines) + "\n")


def only(rows: pl.DataFrame, *columns: str) -> tuple[object, ...]:
    assert rows.height == 1
    return rows.select(columns).row(0)


def test_a_checkout_of_aiconfigurator(tmp_path):
    vllm = f"{SYSTEMS}/h100_sxm/vllm/0.24.0"
    write(
        tmp_path, f"{vllm}/gemm_perf.txt", f"{NAMES},gemm_dtype,m,n,k,latency",
        "VLLM,0.24.0,NVIDIA H100 80GB HBM3,gemm,torch,bfloat16,8,4096,1024,0.0125",
        "VLLM,0.24.0,NVIDIA H100 80GB HBM3,gemm,torch,int4_wo,8,4096,1024,0.01",
    )  # fmt: skip
    write(
        tmp_path, f"{vllm}/context_attention_perf.txt", f"{NAMES},{ATTENTION}",
        "VLLM,0.24.0,NVIDIA H100 80GB HBM3,context_attention,fa3,2,512,32,8,128,1,bfloat16,fp8,1536,0.25",
    )  # fmt: skip
    write(
        tmp_path, f"{vllm}/moe_perf.txt", f"{NAMES},{EXPERTS}",
        "VLLM,0.24.0,NVIDIA H100 80GB HBM3,moe,triton,fp8,64,2048,768,8,128,2,4,power_law_1.2,0.1",
    )  # fmt: skip
    write(tmp_path, f"{SYSTEMS}/unheard_of/vllm/1/gemm_perf.txt", "gemm_dtype,m,n,k,latency", "fp8,1,1,1,1.0")
    write(tmp_path, f"{SYSTEMS}/h100_sxm/nccl/2.27/gemm_perf.txt", "gemm_dtype,m,n,k,latency", "fp8,1,1,1,1.0")
    rows = load_datasets(tmp_path)
    assert set(rows["gpu"]) == {"h100-sxm"}
    assert set(rows["framework"]) == {"cublas", "fa3", "triton"}
    assert set(rows.select("engine", "release").iter_rows()) == {("vllm", 2400.0)}
    assert set(rows["source"]) == {"graph"}
    gemm = rows.filter(pl.col("family") == "gemm")
    assert only(gemm, "dtype", "m", "n", "k", "latency_us") == ("bf16", 8, 4096, 1024, 12.5)
    attention = rows.filter(pl.col("family") == "attention")
    assert only(attention, "q_len", "kv_len", "kv_dtype", "window", "kv_heads") == (512, 2048, "fp8", 0, 8)
    moe = rows.filter(pl.col("family") == "moe")
    assert only(moe, "tokens", "tp", "ep", "routing", "latency_us") == (64, 2, 4, "power_law_1.2", 100.0)


@pytest.mark.parametrize(
    "folder",
    [
        f"{SYSTEMS}/b200_sxm/sglang/0.5.12",
        "aic-core/src/aiconfigurator_core/systems/data/b200_sxm/gemm/sglang/0.5.12",
    ],
)
def test_its_newer_tables_are_parquet_and_lie_by_kind_today(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    columns = {"gemm_dtype": ["fp8_block"], "m": [64], "n": [512], "k": [256], "latency": [0.004]}
    pl.DataFrame(columns).write_parquet(tmp_path / folder / "gemm_perf.parquet")
    row = only(load_datasets(tmp_path), "gpu", "framework", "dtype", "latency_us")
    assert row == ("b200", "sglang", "fp8_block", pytest.approx(4.0 - SHORTEST_US[ONE_PASS]))


def test_latent_attention_apart_and_over_the_cache(tmp_path):
    head = f"{NAMES},mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,tp_size,step,latency"
    sglang, trtllm = (f"{SYSTEMS}/h200_sxm/{engine}" for engine in ("sglang/0.5.14", "trtllm/1.3.0rc20"))
    kernel = "x,y,NVIDIA H200,mla"
    write(tmp_path, f"{sglang}/context_mla_perf.txt", head, f"{kernel},flash_attention,bfloat16,fp8,16,2,512,8,0,0.03")
    write(
        tmp_path, f"{trtllm}/generation_mla_perf.txt", head, f"{kernel},default,bfloat16,bfloat16,8,64,1,16,2047,0.02"
    )
    launched = f"{kernel},vllm_flashmla,bfloat16,fp8,8,64,1,16,2047,0.13"
    write(tmp_path, f"{SYSTEMS}/h200_sxm/vllm/0.14.0/generation_mla_perf.txt", head, launched)
    rows = load_datasets(tmp_path)
    apart, absorbed = rows.filter(pl.col("cache_width").is_null()), rows.filter(pl.col("cache_width").is_not_null())
    assert only(apart, "framework", "heads", "kv_heads", "q_len", "head_dim") == ("fa3", 16, 16, 512, (192 + 128) / 2)
    assert only(absorbed, "framework", "heads", "kv_heads", "q_len", "kv_len") == ("trtllm", 8, 1, 1, 2048)
    assert only(absorbed, "head_dim", "cache_width") == ((576 + 512) / 2, 512 + 64)


def write_table(folder: Path, path: str, **columns: list[object]) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(folder / path)


def write_products(folder: Path, system: str, latency: float, release: str = "sglang/0.5.14") -> None:
    one = {"gemm_dtype": ["fp8_block"], "m": [64], "n": [512], "k": [256], "latency": [latency]}
    write_table(folder, f"{system}/gemm/{release}/gemm_perf.parquet", **one)


def test_a_wheel_reads_the_same_packed_or_not(tmp_path):
    systems = "aiconfigurator_core/systems/data"
    write_products(tmp_path / "unpacked", f"{systems}/b200_sxm", 0.005)
    wheel = tmp_path / "aiconfigurator_core-0.12.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for path in (tmp_path / "unpacked").rglob("*.parquet"):
            file.write(path, path.relative_to(tmp_path / "unpacked"))
    rows = load_datasets(wheel)
    assert only(rows, "gpu", "engine", "release", "m") == ("b200", "sglang", 514.0, 64)
    assert rows.equals(load_datasets(tmp_path / "unpacked"))


def test_a_later_collection_replaces_a_release_on_a_gpu_whole(tmp_path):
    """A release that only the older one has stays, as does one of another GPU."""
    older, newer = tmp_path / "older", tmp_path / "newer"
    systems = "aiconfigurator_core/systems/data"
    for system, release, latency in (
        ("b200_sxm", "sglang/0.5.14", 0.02), ("b200_sxm", "sglang/0.5.10", 0.03), ("h100_sxm", "sglang/0.5.14", 0.035),
    ):  # fmt: skip
        write_products(older, f"{systems}/{system}", latency, release)
    write_products(newer, f"{systems}/b200_sxm", 0.01)
    rows = load_datasets(older, newer).sort("gpu", "release")
    taken = SHORTEST_US[ONE_PASS]
    assert rows["latency_us"].to_list() == pytest.approx([30 - taken, 10 - taken, 35 - taken])
    assert load_datasets(newer, older).filter(gpu="b200", release=514.0)["latency_us"].item() == 20 - taken


def test_quantising_is_taken_off_the_products_that_contain_it(tmp_path):
    """TensorRT-LLM's in fp8 scale the whole input: 8 + 2 us of 21. vLLM's cast in one pass stands for all others."""
    system = f"{'aiconfigurator_core/systems/data'}/b200_sxm"
    for engine, scale, cast in (("trtllm/1.3.0rc20", 0.008, 0.002), ("vllm/0.24.0", 0.001, 0.003)):
        size = {"m": [4], "k": [8192], "quant_dtype": ["fp8"]}
        write_table(tmp_path, f"{system}/quantize/{engine}/computescale_perf.parquet", **size, latency=[scale])
        write_table(tmp_path, f"{system}/quantize/{engine}/scale_matrix_perf.parquet", **size, latency=[cast])
    for engine in ("trtllm/1.3.0rc20", "sglang/0.5.14"):
        columns = {"gemm_dtype": ["fp8", "nvfp4", "bfloat16"], "m": [4] * 3, "n": [2560] * 3, "k": [8192] * 3}
        write_table(tmp_path, f"{system}/gemm/{engine}/gemm_perf.parquet", **columns, latency=[0.021, 0.014, 0.011])
    rows = load_datasets(tmp_path)
    products = rows.filter(family="gemm").sort("engine", "dtype")
    fp4_us = 14 - 3 * (2 + 0.5625) / (2 + 1)
    found = products.select("engine", "dtype", "latency_us").rows()
    assert found == [
        ("sglang", "bf16", 11.0), ("sglang", "fp8", pytest.approx(18)), ("sglang", "nvfp4", pytest.approx(fp4_us)),
        ("trtllm", "bf16", 11.0), ("trtllm", "fp8", pytest.approx(11)), ("trtllm", "nvfp4", pytest.approx(fp4_us)),
    ]  # fmt: skip
    quantising = rows.filter(family="quantise").sort("engine").select("engine", "part", "rows", "cols", "latency_us")
    assert quantising.rows() == [
        ("trtllm", "tensor scale", 4, 8192, pytest.approx(10.0)), ("vllm", None, 4, 8192, pytest.approx(3.0)),
    ]  # fmt: skip


def test_products_of_latent_attention_are_batched_over_heads(tmp_path):
    columns = {
        "op_name": ["mla_gen_pre", "mla_gen_post"], "kernel_source": ["sglang_sgl_kernel_bmm_fp8"] * 2,
        "bmm_dtype": ["fp8"] * 2, "num_tokens": [32] * 2, "num_heads": [128] * 2, "latency": [0.02, 0.03],
    }  # fmt: skip
    path = "aiconfigurator_core/systems/data/h100_sxm/mla_bmm/sglang/0.5.14/mla_bmm_perf.parquet"
    write_table(tmp_path, path, **columns)
    rows = load_datasets(tmp_path).select("batch", "m", "n", "k", "latency_us").sort("latency_us")
    assert rows.rows() == [(128, 32, 512, 128, 20.0), (128, 32, 128, 512, 30.0)]


def test_what_is_faster_than_the_peak_is_no_measurement():
    """An H100's 989 TFLOP/s in bf16 take 139 us for 4,096 x 4,096 x 4,096."""
    rows = pl.DataFrame({"family": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": [4096, 4096, 64]})
    table = prepare_kernels(rows).with_columns(latency_us=pl.Series([120.0, 135.0, 10.0]))
    assert find_impossible("gemm half", table, load_hardware("h100-sxm")).tolist() == [True, False, False]
    # 3.35 TB/s bring 10 GB in 3 ms.
    passes = prepare_kernels(pl.DataFrame({"family": "norm", "bytes": [1e10, 1e10]}))
    passes = passes.with_columns(latency_us=pl.Series([2000.0, 2600.0]))
    assert find_impossible("norm", passes, load_hardware("h100-sxm")).tolist() == [True, False]


def test_experts_with_weights_of_4_bits_are_read(tmp_path):
    kernel = "x,y,NVIDIA H100 80GB HBM3,moe,sglang_marlin_moe"
    sizes = "64,2048,768,8,128,1,1,balanced,0.1"
    lines = [f"{kernel},{dtype},{sizes}" for dtype in ("int4_wo", "w4a16_mxfp4", "unheard_of")]
    write(tmp_path, f"{SYSTEMS}/h100_sxm/sglang/0.5.14/moe_perf.txt", f"{NAMES},{EXPERTS}", *lines)
    rows = load_datasets(tmp_path).sort("dtype")
    assert rows.select("framework", "dtype").rows() == [("marlin", "int4_wo"), ("marlin", "w4a16_mxfp4")]


def test_linear_and_sparse_attention_and_mixing_are_read(tmp_path):
    """Each with its bytes: what a kernel reads and writes once, 2 bytes a number, 4 in states and scores."""
    layer = {"batch_size": [2, 2], "seq_len": [100, 1], "d_conv": [4, 4], "num_k_heads": [2, 2], "head_k_dim": [8, 8]}
    layer |= {"num_v_heads": [4, 4], "head_v_dim": [16, 16], "latency": [0.05, 0.005]}
    folder = f"{SYSTEMS}/h100_sxm/linear_attention/sglang/0.5.14"
    kinds = {"kernel_source": ["chunk_gated_delta_rule", "causal_conv1d_update"], "phase": ["context", "generation"]}
    write_table(tmp_path, f"{folder}/gdn_perf.parquet", **layer, **kinds)
    mixing = {"op_name": ["pre"], "kernel_source": ["tilelang"], "num_tokens": [10], "num_sites": [2], "hc_mult": [4]}
    write_table(tmp_path, f"{folder}/mhc_module_perf.parquet", **mixing, hidden_size=[64], latency=[0.02])
    place = {"batch_size": [2], "isl": [4], "step": [100], "num_heads": [64], "kernel_source": ["x"], "latency": [0.01]}
    write_table(tmp_path, f"{folder}/glm5_mqa_logits_module_perf.parquet", **place)
    write_table(tmp_path, f"{folder}/glm5_dsa_attn_module_perf.parquet", **place)
    found = {row["part"]: row for row in load_datasets(tmp_path).iter_rows(named=True)}
    states = 4 * 8 * 16 * 4
    assert found["chunks"]["bytes"] == 200 * (2 * 2 * 8 + 2 * 4 * 16) * 2 + 2 * 2 * states
    assert found["convolution"]["bytes"] == 2 * (2 * 2 * 8 + 4 * 16) * (2 * 2 + 2 * 2 * 3)
    assert (found["hyper in"]["bytes"], found["hyper in"]["latency_us"]) == (10 * 64 * 9 * 2, 10.0)
    # 32 heads of 4 queries, each of which sees 102 of 104 keys on average.
    assert (found["indexer"]["m"], found["indexer"]["n"], found["indexer"]["dtype"]) == (128, 102, "fp8")
    assert found["indexer"]["bytes"] == 2 * (4 * 102 * 4 + (128 + 104) * 128)
    assert (found["sparse"]["window"], found["sparse"]["kv_len"]) == (2048, 2048)


def test_files_that_git_lfs_keeps_elsewhere_are_said(tmp_path):
    write(
        tmp_path, f"{SYSTEMS}/b200_sxm/sglang/1/gemm_perf.txt", "version https://git-lfs.github.com/spec/v1", "size 1"
    )
    with pytest.raises(ValueError, match="git lfs pull"):
        load_datasets(tmp_path)


def test_a_checkout_of_neusight(tmp_path):
    base = "scripts/asplos/data/dataset"
    collect = f"{base}/train/collect"
    head = "OPName,Latency,Device,Torch Version,Kernel Name"
    write(
        tmp_path, f"{collect}/linear/p2.1.0/Tesla T4.csv", f"{head},B,M,N,K",
        'linear,0.5,Tesla T4,p2.1.0,"volta_sgemm<1, 2>",1,58,13,141',
    )  # fmt: skip
    write(
        tmp_path, f"{base}/test/bmm.csv", f"{head},B,M,N,K",
        "bmm,0.25,NVIDIA H100 80GB HBM3,p2.1.0,sgemm,192,96,196,64", "bmm,0.5,NVIDIA L4,p2.1.0,sgemm,192,96,196,64",
    )  # fmt: skip
    write(tmp_path, f"{base}/test/ln.csv", f"{head},B,H", "ln,0.03,NVIDIA H100 80GB HBM3,p2.1.0,ln,127,168")
    write(tmp_path, f"{collect}/add/p2.1.0/Tesla T4.csv", f"{head},B,H", "add,0.026,Tesla T4,p2.1.0,add,127,168")
    write(
        tmp_path, f"{collect}/conv/p2.1.0/Tesla T4.csv",
        f"{head},B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,Stride,Padding",
        "conv,1.5,Tesla T4,p2.1.0,sgemm,38,893,326,3,5,1,1",
    )  # fmt: skip
    rows = load_datasets(tmp_path)
    assert set(rows["dtype"]) == {"fp32"}
    assert set(rows["source"]) == {"eager"}
    gemm = rows.filter(pl.col("family") == "gemm")
    assert set(rows["gpu"]) == {"t4", "h100-sxm"}
    t4, h100 = gemm.filter(pl.col("gpu") == "t4"), gemm.filter(pl.col("gpu") == "h100-sxm")
    assert only(t4, "batch", "m", "n", "k", "latency_us") == (1, 58, 141, 13, 500.0)
    assert only(h100, "batch", "m", "n", "k", "latency_us") == (192, 96, 64, 196, 250.0)
    assert "norm" not in set(rows["family"])
    added = rows.filter(pl.col("family") == "elementwise")
    assert only(added, "rows", "cols", "bytes") == (127, 168, 3 * 4 * 127 * 168)
    conv = rows.filter(pl.col("family") == "conv")
    numel = 38 * 893 * 25 + 326 * 893 * 9 + 38 * 326 * 25
    assert only(conv, "m", "n", "k", "bytes") == (38 * 25, 326, 893 * 9, 4 * numel)
    assert only(conv, "channels", "height", "width") == (893, 5, 5)


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no measured kernels under"):
        load_datasets(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nowhere is neither a folder nor a source; sources: aiconfigurator, "),
        (["--hold-out", "h1000"], "unknown GPU 'h1000'"),
    ],
)
def test_weights_are_not_fitted_without_the_data_that_was_named(monkeypatch, tmp_path, options, said):
    """What is kept here would do for some: a folder or a GPU misspelt isn't passed over."""
    out = tmp_path / "out"
    monkeypatch.setattr("sys.argv", ["training", "fit", "--data", "nowhere", "--out", str(out), *options])
    with pytest.raises(SystemExit, match=said):
        main()
    assert not out.exists()


def test_kernels_of_traces():
    table = pl.read_parquet(TRACES_TABLE)
    assert TRACES_TABLE.stat().st_size < 500_000
    others = table.filter(~pl.col("trace").str.starts_with("h100-sxm_"))
    assert not others["trace"].str.contains("owlv2|timesformer|nsfw|vit_|Qwen1.5|bert").any()
    assert not table["gpu"].str.contains("h200").any()
    rows = load_datasets(TRACES_TABLE)
    assert {"mi300x", "v100-sxm-32gb", "h100-sxm"} <= set(rows["gpu"])
    assert set(rows["source"]) == {"trace"}
    assert rows["latency_us"].min() > 0


def test_each_release_keeps_its_own_time(tmp_path):
    for version, latency_ms in (("0.19.0", 0.30), ("0.24.0", 0.20)):
        gemm = f"VLLM,{version},NVIDIA H100 80GB HBM3,gemm,torch,bfloat16,8,4096,1024,{latency_ms / 10}"
        write(tmp_path, f"{SYSTEMS}/h100_sxm/vllm/{version}/gemm_perf.txt", f"{NAMES},gemm_dtype,m,n,k,latency", gemm)
    assert dict(load_datasets(tmp_path).select("release", "latency_us").iter_rows()) == {1900.0: 30.0, 2400.0: 20.0}


def test_experts_of_two_matrices_are_left_out(tmp_path):
    """Their shape says the work of three."""
    row = "{},1.3.0rc20,NVIDIA H100 80GB HBM3,moe,{},bfloat16,64,2048,768,8,128,1,1,balanced,0.1"
    write(
        tmp_path, f"{SYSTEMS}/h100_sxm/trtllm/1.3.0rc20/moe_perf.txt", f"{NAMES},{EXPERTS}",
        row.format("TRTLLM", "moe_torch_flow_cutlass"), row.format("TRTLLM", "moe_torch_flow_nongated"),
    )  # fmt: skip
    assert only(load_datasets(tmp_path), "framework", "engine") == ("cutlass", "trtllm")


def test_products_without_an_engine(tmp_path):
    (tmp_path / "pipeweave").mkdir()
    row = {"hardware": "NVIDIA H20", "m": 108, "n": 8192, "k": 1024, "latency_us": 13.66}
    pl.DataFrame([row]).write_parquet(tmp_path / "pipeweave/gemm_fp8.parquet")
    assert only(load_datasets(tmp_path), "gpu", "dtype", "framework", "m", "latency_us") == (
        "h20", "fp8", "benchmark", 108, 13.66,
    )  # fmt: skip


def test_a_version_whose_shortest_product_takes_as_long_as_a_launch_is_left_out(tmp_path):
    """As vLLM 0.24's in fp8 blocks on an L40S: 282 us whatever the size, where TensorRT-LLM takes 4."""
    for version, floor_ms in (("0.19.0", 0.005), ("0.24.0", 0.282)):
        product = f"VLLM,{version},NVIDIA L40S,gemm,torch,bfloat16"
        write(
            tmp_path, f"{SYSTEMS}/l40s/vllm/{version}/gemm_perf.txt", f"{NAMES},gemm_dtype,m,n,k,latency",
            f"{product},8,4096,1024,{floor_ms}", f"{product},8192,4096,8192,{floor_ms + 1}",
        )  # fmt: skip
    assert load_datasets(tmp_path).sort("m")["latency_us"].to_list() == pytest.approx([5, 1005])


def test_a_folder_named_after_a_source_is_read_as_that_source_alone(tmp_path):
    row = {"hardware": "NVIDIA H100", "m": 64, "n": 4096, "k": 1024, "latency_us": 12.5}
    for folder in ("pipeweave", "NeuSight"):
        (tmp_path / folder).mkdir()
        pl.DataFrame([row]).write_parquet(tmp_path / folder / "gemm_fp8.parquet")
    assert load_datasets(tmp_path).height == 1
    assert load_datasets(tmp_path / "pipeweave").height == 1
    with pytest.raises(ValueError, match=r"no measured kernels under .*NeuSight"):
        load_datasets(tmp_path / "NeuSight")


ATTENTION_CALL = "cudnn,{dtype},{mask},2,4096,4096,128,8,192,128"
ATTENTION_SIZES = (
    "backend,data_type,attn_mask,batch_size,q_seqlen,kv_seqlen,num_q_heads,num_kv_heads,head_dim_qk,head_dim_vo"
)


def test_a_checkout_of_cudnn_frontend(tmp_path):
    """A pass in a row, or both in one as until 2026; failed calls have infinite times."""
    results = "benchmark/sdpa_benchmark_training/results"
    mx, bf = (
        ATTENTION_CALL.format(dtype=dtype, mask=mask)
        for dtype, mask in (("mxfp8", "top_left"), ("bfloat16", "no_mask"))
    )
    write(
        tmp_path, f"{results}/dsv3/gb200/dsv3_20260424.csv",
        f"{ATTENTION_SIZES},profile_pass,deterministic_bwd,time_ms,sliding_window_size,gpu_name",
        *(f"{mx},{one},128,NVIDIA GB200" for one in ("bwd,True,9.0", "bwd,False,6.0", "fwd,True,2.0")),
    )  # fmt: skip
    write(
        tmp_path, f"{results}/h200_919/dsv3.csv",
        f"{ATTENTION_SIZES},profile_pass,deterministic_bwd,fwd_time_ms,bwd_time_ms,sliding_window_size,gpu_name",
        f"{bf},both,True,1.5,4.5,,NVIDIA H200", f"{bf},both,False,inf,inf,,NVIDIA H200",
    )  # fmt: skip
    rows = load_datasets(tmp_path)
    assert set(rows["source"]) == {"graph"}
    assert set(rows["head_dim"]) == {160}
    columns = ("gpu", "dtype", "direction", "causal", "window", "latency_us")
    assert sorted(rows.select(columns).iter_rows()) == [
        ("gb200", "mxfp8", "backward", True, 128, 6000),
        ("gb200", "mxfp8", "forward", True, 128, 2000),
        ("h200-sxm", "bf16", "backward", False, 0, 4500),
        ("h200-sxm", "bf16", "forward", False, 0, 1500),
    ]
    assert set(prepare_kernels(rows)["law"]) == {"sequence"}
