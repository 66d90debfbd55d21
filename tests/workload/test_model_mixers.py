"""Latent attention and linear attention from the model's ``config.json``; FLOPs of each layer worked out by hand.

Sizes are those of DeepSeek-V3 and Qwen3-Next-80B-A3B, with two and four layers.
"""

import json
from pathlib import Path

import polars as pl
import pytest

from tests.models.test_llm import ATTENTION, EXPERTS, GEMM, NORM, parse
from tests.models.test_llm import serve as serve_graph
from tracekit.run import prepare_run

DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 2,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
QWEN = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "vocab_size": 151936,
}
ACT = "act_and_mul_kernel<c10::BFloat16>"
MLA = "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8, cutlass::bfloat16_t, 512>>"
DENSE_MLP = (GEMM, ACT, GEMM, NORM)
MOE = (GEMM, GEMM, ACT, GEMM, EXPERTS, ACT, EXPERTS, NORM)
"""The router, the expert of all tokens, the experts."""
MOE_SHARED_FIRST = (GEMM, ACT, GEMM, GEMM, EXPERTS, ACT, EXPERTS, NORM)
MOE_SHARED_AMONG = (GEMM, EXPERTS, ACT, EXPERTS, NORM)
DECODE, PREFILL = "execute_context_0(0)_generation_4(4_4000)", "execute_context_1(256)_generation_0(0)"


def list_latent(moe: tuple[str, ...] = MOE) -> tuple[str, ...]:
    """Compression, norm, queries, queries into the cache's space; attention; out of it, output; MLP."""
    before, after = (GEMM, NORM, GEMM, GEMM), (MLA, GEMM, GEMM, NORM)
    return (*before, *after, *DENSE_MLP, *before, *after, *moe, GEMM)


def serve(names: tuple[str, ...], given: dict[str, object], mark: str) -> pl.DataFrame:
    Path("config.json").write_text(json.dumps(given))
    return prepare_run(serve_graph(*names, mark=mark).load(), model_config="config.json").kernels.sort("ts_ns")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def get_sizes(kernels: pl.DataFrame) -> list[tuple[int, ...]]:
    return kernels.filter(pl.col("name") == GEMM).select("batch", "m", "n", "k").rows()


def test_a_decode_step_of_latent_attention():
    kernels = serve(list_latent(), DEEPSEEK, DECODE)
    attention = [
        (1, 4, 1536 + 512 + 64, 7168),  # compressed queries, keys and values
        (1, 4, 128 * (128 + 64), 1536),  # queries of 128 heads
        (128, 4, 512, 128),  # into the space of the cache, a GEMM per head
        (128, 4, 128, 512),  # out of it
        (1, 4, 7168, 128 * 128),
    ]
    dense = [(1, 4, 2 * 18432, 7168), (1, 4, 7168, 18432)]
    moe = [(1, 4, 256, 7168), (1, 4, 2 * 2048, 7168), (1, 4, 7168, 2048)]
    assert get_sizes(kernels) == [*attention, *dense, *attention, *moe, (1, 4, 129280, 7168)]
    assert set(kernels["work_from"]) == {"model"}
    row = kernels.filter(pl.col("name") == MLA).row(0, named=True)
    # 4 sequences of 1,000 keys: scores over 512 + 64, values over 512; the cache's row is read once.
    assert (row["batch"], row["heads"], row["kv_heads"], row["q_len"], row["kv_len"]) == (4, 128, 1, 1, 1000)
    assert 4 * row["head_dim"] == 2 * (576 + 512)
    assert row["cache_width"] == 576


def test_flops_of_a_layer_of_latent_attention():
    """Of one decoded token beside 1,000 keys, with the sizes of DeepSeek-V3."""
    kernels = serve(list_latent(), DEEPSEEK, DECODE.replace("4(4_4000)", "1(1_1000)"))
    gemms = kernels.filter(pl.col("name") == GEMM)[:5]
    # 2 x 2,112 x 7,168; 2 x 24,576 x 1,536; twice 128 heads x 2 x 128 x 512; 2 x 7,168 x 16,384.
    assert (
        gemms.select(2 * pl.col("batch") * pl.col("m") * pl.col("n") * pl.col("k")).sum().item()
        == 30_277_632 + 75_497_472 + 2 * 16_777_216 + 234_881_024
    )
    predicted = prepare_run(
        serve_graph(*list_latent(), mark="execute_context_0(0)_generation_1(1_1000)").load(), model_config="config.json"
    )
    work = list_work(predicted.kernels)
    assert work["flops"][0] == 2 * 128 * 1000 * (576 + 512)
    # The cache's rows, the queries and the output, whose mean width is 544.
    assert work["bytes"][0] == 2 * (1000 * 576 + 2 * 128 * 544)


def list_work(kernels: pl.DataFrame) -> pl.DataFrame:
    from predictors.columns import prepare_kernels

    table = kernels.filter(pl.col("family") == "attention").sort("ts_ns").with_columns(share=pl.lit(1.0))
    return prepare_kernels(table).select(flops="work_flops", bytes="work_bytes")


def test_a_prefill_of_latent_attention():
    """Keys and values of each head are made from the compressed ones; attention works on them."""
    before = (GEMM, NORM, GEMM, GEMM)
    names = (*before, ATTENTION, GEMM, NORM, *DENSE_MLP, *before, ATTENTION, GEMM, NORM, *MOE, GEMM)
    kernels = serve(names, DEEPSEEK, PREFILL)
    assert get_sizes(kernels)[:4] == [
        (1, 256, 2112, 7168),
        (1, 256, 24576, 1536),
        (1, 256, 128 * (128 + 128), 512),
        (1, 256, 7168, 16384),
    ]
    row = kernels.filter(pl.col("name") == ATTENTION).row(0, named=True)
    assert (row["batch"], row["heads"], row["kv_heads"], row["q_len"], row["kv_len"]) == (1, 128, 128, 256, 256)
    assert (row["head_dim"], row["cache_width"]) == ((192 + 128) // 2, None)


def test_prefill_and_decode_batches_of_one_trace():
    before = (GEMM, NORM, GEMM, GEMM)
    prefill = (*before, ATTENTION, GEMM, NORM, *DENSE_MLP, *before, ATTENTION, GEMM, NORM, *MOE, GEMM)
    builder = serve_graph(*prefill, mark=PREFILL)
    builder.annotation(DECODE, 5000, 50).call("cudaGraphLaunch", 5010, 5)
    graph = builder.events[-1]["args"]["correlation"]
    for i, name in enumerate(list_latent()):
        builder.kernel(name, 5100 + 12 * i, 10, correlation=graph)
    Path("config.json").write_text(json.dumps(DEEPSEEK))
    kernels = prepare_run(builder.load(), model_config="config.json").kernels
    assert set(kernels["work_from"]) == {"model"}


@pytest.mark.parametrize(
    ("moe", "widths", "experts"),
    [
        (MOE, [256, 4096, 7168], (256, 8)),
        (MOE_SHARED_FIRST, [4096, 7168, 256], (256, 8)),
        (MOE_SHARED_AMONG, [256], (257, 9)),
    ],
    ids=["router first", "shared first", "shared among the experts"],
)
def test_where_an_engine_puts_the_expert_of_all_tokens(moe, widths, experts):
    kernels = serve(list_latent(moe), DEEPSEEK, DECODE)
    assert [n for _, _, n, _ in get_sizes(kernels)[12:-1]] == widths
    row = kernels.filter(pl.col("name") == EXPERTS).row(0, named=True)
    assert (row["n"], row["k"], row["experts"], row["top_k"]) == (4096, 7168, *experts)


def test_queries_that_are_not_compressed():
    """DeepSeek-V2-Lite's."""
    layers = parse(DEEPSEEK | {"q_lora_rank": None}).layers
    assert (layers[0].latent.query_rank, layers[0].latent.cached) == (0, 576)
    kernels = serve(list_latent(), DEEPSEEK | {"q_lora_rank": None}, DECODE)
    assert get_sizes(kernels)[:3] == [(1, 4, 24576, 7168), (1, 4, 576, 7168), (128, 4, 512, 128)]


def test_a_rank_has_its_heads_and_the_whole_compressed_cache():
    collective = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>"
    builder = serve_graph(*list_latent(), collective, mark=DECODE)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    Path("config.json").write_text(json.dumps(DEEPSEEK))
    kernels = prepare_run(builder.load(), model_config="config.json").kernels.sort("ts_ns")
    assert get_sizes(kernels)[:5] == [
        (1, 4, 2112, 7168),
        (1, 4, 3072, 1536),
        (16, 4, 512, 128),
        (16, 4, 128, 512),
        (1, 4, 7168, 2048),
    ]


CONV, STEP = "_causal_conv1d_update_kernel", "fused_recurrent_gated_delta_rule_fwd_kernel"
SPLIT = "fused_qkvzba_split_reshape_cat_kernel"
QWEN_MOE = (GEMM, GEMM, ACT, GEMM, GEMM, EXPERTS, ACT, EXPERTS, NORM)
"""With the gate of the expert of all tokens."""
CHUNKS = (
    "chunk_local_cumsum_scalar_kernel",
    "chunk_scaled_dot_kkt_fwd_kernel",
    "merge_16x16_to_64x64_inverse_kernel",
    "recompute_w_u_fwd_kernel",
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
    "chunk_fwd_kernel_o",
)


def list_hybrid(*linear: str) -> tuple[str, ...]:
    delta = (GEMM, GEMM, SPLIT, *linear, NORM, GEMM, NORM, *QWEN_MOE)
    return (*delta, *delta, *delta, GEMM, ATTENTION, GEMM, NORM, *QWEN_MOE, GEMM)


def test_a_decode_step_of_the_gated_delta_rule():
    kernels = serve(list_hybrid(CONV, STEP), QWEN, DECODE)
    assert set(kernels["work_from"]) == {"model"}
    moe = [(1, 4, 512, 2048), (1, 4, 1024, 2048), (1, 4, 2048, 512), (1, 4, 1, 2048)]
    # Queries, keys of 16 heads of 128, values and gates of 32; two numbers for each of 32 heads.
    delta = [(1, 4, 12288, 2048), (1, 4, 64, 2048), (1, 4, 2048, 4096)]
    # Queries and gates of 16 heads of 256, keys and values of 2.
    full = [(1, 4, 9216, 2048), (1, 4, 2048, 4096)]
    assert get_sizes(kernels) == [*3 * [*delta, *moe], *full, *moe, (1, 4, 151936, 2048)]
    conv, step = (kernels.filter(pl.col("name") == name).row(0, named=True) for name in (CONV, STEP))
    # 8,192 channels of 4 taps; 4 tokens in and out, and 3 that each of 4 sequences keeps.
    assert (conv["flops"], conv["bytes"]) == (2 * 4 * 4 * 8192, (2 * 4 + 2 * 4 * 3) * 8192 * 2)
    # 32 heads with a state of 128 x 128; 7 FLOPs per element: 3.67 million a token.
    assert step["flops"] == 4 * 3_670_016
    assert step["bytes"] == 4 * (2 * 32 * 128 * 128 + 2 * 2048 + 2 * 4096) * 2
    assert (step["work_low"], round(step["work_high"], 1)) == (1.0, 2.0)  # states of 32 bits
    attention = kernels.filter(pl.col("family") == "attention").row(0, named=True)
    assert (attention["heads"], attention["kv_heads"], attention["head_dim"]) == (16, 2, 256)


def test_chunks_of_the_gated_delta_rule():
    """256 tokens in 4 chunks of 64, 32 heads: 128 pairs of chunk and head."""
    kernels = serve(list_hybrid(CONV, *CHUNKS), QWEN, PREFILL)
    assert set(kernels["work_from"]) == {"model"}
    found = {row["name"]: row for row in kernels.iter_rows(named=True)}
    gemms = [found[CHUNKS[i]] for i in (1, 3, 4, 5)]
    assert [(row["batch"], row["m"], row["n"], row["k"]) for row in gemms] == [
        (128, 64, 32, 128),  # keys with keys, the causal half
        (128, 64, 128 + 128, 64),  # the inverse with keys and with values
        (128, 64, 2 * 128, 128),  # what the state recalls of the keys; the state's correction
        (128, 64, 128, 128 + 32 + 32),  # the state's output, scores of pairs, their output
    ]
    # Of a token, in million: 0.26 + 1.05 + 2.10 + 1.57.
    flops = sum(2 * row["batch"] * row["m"] * row["n"] * row["k"] for row in gemms)
    assert flops / 256 == 32 * 2 * (32 * 128 + 256 * 64 + 256 * 128 + 128 * 192)
    assert {row["dtype"] for row in gemms} == {"bf16"}
    assert found[CHUNKS[0]]["cols"] == 32


GRANITE = {
    "hidden_size": 1536,
    "model_type": "granitemoehybrid",
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "layer_types": ["mamba", "attention"],
    "num_local_experts": 62,
    "num_experts_per_tok": 6,
    "intermediate_size": 512,
    "shared_intermediate_size": 1024,
    "mamba_n_heads": 48,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 128,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 256,
    "vocab_size": 100352,
}
NEMOTRON = {
    "hidden_size": 4096,
    "model_type": "nemotron_h",
    "num_hidden_layers": 5,
    "hybrid_override_pattern": "M-M*-",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 21504,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "chunk_size": 128,
}


def test_mamba_2_of_granite():
    state = "_selective_scan_update_kernel"
    names = (GEMM, CONV, state, NORM, GEMM, *MOE, GEMM, ATTENTION, GEMM, NORM, *MOE, GEMM)
    kernels = serve(names, GRANITE, DECODE)
    assert set(kernels["work_from"]) == {"model"}
    # Twice 48 heads of 64, two factors of 128, a number a head.
    assert get_sizes(kernels)[:3] == [(1, 4, 2 * 3072 + 2 * 128 + 48, 1536), (1, 4, 1536, 3072), (1, 4, 62, 1536)]
    row = kernels.filter(pl.col("name") == state).row(0, named=True)
    assert row["flops"] == 5 * 4 * 48 * 64 * 128
    assert parse(GRANITE).layers[0].shared_width == 1024
    assert parse(GRANITE | {"num_local_experts": 0}).layers[0].mlp_width == 1024


def test_mamba_2_of_nemotron_whose_layers_may_have_no_mlp():
    layers = parse(NEMOTRON).layers
    assert [(bool(layer.linear), layer.mlp_width, layer.is_gated) for layer in layers] == [
        (True, 21504, False),
        (True, 0, False),
        (False, 21504, False),
    ]
    chunks = ("_chunk_cumsum_fwd_kernel", "_chunk_state_fwd_kernel", "_state_passing_fwd_kernel",
              "_bmm_chunk_fwd_kernel", "_chunk_scan_fwd_kernel")  # fmt: skip
    mamba = (GEMM, CONV, *chunks, NORM, GEMM)
    names = (*mamba, GEMM, ACT, GEMM, *mamba, GEMM, ATTENTION, GEMM, GEMM, ACT, GEMM)
    kernels = serve(names, NEMOTRON, PREFILL)
    assert set(kernels["work_from"]) == {"model"}
    found = {row["name"]: row for row in kernels.iter_rows(named=True)}
    sizes = [tuple(found[chunks[i]][name] for name in ("batch", "m", "n", "k")) for i in (1, 3, 4)]
    # 256 tokens are 2 chunks of 128; 128 heads of 64 with a state of 128, 8 groups.
    assert sizes == [(256, 64, 128, 128), (16, 128, 128, 128), (256, 128, 64, 128 + 64)]


def test_attention_that_begins_anew():
    """Llama 4's, in three of four layers."""
    given = {
        "hidden_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "intermediate_size": 256,
        "intermediate_size_mlp": 1024,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 64,
    }
    layers = parse(given).layers
    assert [(layer.chunk, layer.experts, layer.mlp_width, layer.shared_width) for layer in layers] == [
        (64, 0, 1024, 0),
        (64, 16, 256, 256),
        (64, 0, 1024, 0),
        (None, 16, 256, 256),
    ]
    dense, moe = (GEMM, ATTENTION, GEMM, GEMM, ACT, GEMM), (GEMM, ATTENTION, GEMM, *MOE)
    kernels = serve((*dense, *moe, *dense, *moe), given, PREFILL)
    rows = kernels.filter(pl.col("family") == "attention").select("batch", "q_len", "kv_len").rows()
    assert rows == [*3 * [(4, 64, 64)], (1, 256, 256)]
    decoded = serve((*dense, *moe, *dense, *moe), given, DECODE).filter(pl.col("family") == "attention")
    assert decoded["kv_len"].to_list() == [32, 32, 32, 1000]


@pytest.mark.parametrize(("often", "experts"), [(2, [256, 0, 256, 0]), ([0, 1, 1, 0], [0, 256, 256, 0])])
def test_how_often_a_layer_has_experts(often, experts):
    layers = parse(DEEPSEEK | {"num_hidden_layers": 4, "first_k_dense_replace": 0, "moe_layer_freq": often}).layers
    assert [layer.experts for layer in layers] == experts
