"""A serving engine's step from a model's config."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tracekit as tk
from predictors import predict
from tracekit.capturing.timed_trace import CaptureSetting
from tracekit.errors import RequestError
from tracekit.parallelism.collective_calls import list_collectives
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.process_groups import infer_layout
from tracekit.request import PredictRequest
from tracekit.request.program_options import ProgramOptions
from tracekit.run import prepare_run
from tracekit.served.engine_step import EngineStep, build_engine_step, capture_engine_step, read_served_model
from tracekit.served.model import ServingEngine

ENGINE = ServingEngine("vllm")
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, WIDTH, WORDS = 2, 1024, 4096, 16, 4, 64, 32000
DENSE: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": WIDTH,
    "intermediate_size": INNER,
    "vocab_size": WORDS,
}
LATENT = {
    **DENSE,
    "model_type": "deepseek_v3",
    "q_lora_rank": 384,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


INDEXED = {**LATENT, "model_type": "deepseek_v32", "index_topk": 512, "index_n_heads": 8, "index_head_dim": 128}


def write(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def tabulate(config: str, step: EngineStep, precision: str | None = None, cache: str | None = None) -> pl.DataFrame:
    model = read_served_model(config, precision, cache)
    trace = capture_engine_step(model, ENGINE, step, None, CaptureSetting())
    return prepare_run(trace, framework="vllm").program.kernels


def list_gemms(kernels: pl.DataFrame) -> list[tuple[int, ...]]:
    return kernels.filter(family="gemm").select("m", "n", "k").rows()


@pytest.mark.parametrize(
    ("step", "rows", "scored"),
    [
        (EngineStep(sequences=4, tokens=1, context=999), 4, (4, 8, 1000, 128, 4 * (1000 * 4 + 1008 * 128))),
        (EngineStep(sequences=1, tokens=64, context=0), 64, (1, 512, 32, 128, 64 * 32 * 4 + 576 * 128)),
    ],
)
def test_an_indexer_selects_the_keys_of_each_token(
    tmp_path: Path, step: EngineStep, rows: int, scored: tuple[int, ...]
) -> None:
    """All tokens work on the cache, 512 keys each, however many there are."""
    kernels = tabulate(write(tmp_path, INDEXED), step)
    scores = kernels.filter(part="indexer")
    assert scores.select("batch", "m", "n", "k", "bytes").rows() == [scored] * LAYERS
    assert scores["dtype"].unique().to_list() == ["fp8"]
    attention = kernels.filter(family="attention")
    batch, each = (rows, 1) if step.tokens == 1 else (1, rows)
    seen = max(step.context + step.tokens, 512)
    assert attention.select("part", "batch", "q_len", "kv_len", "window", "heads", "kv_heads").rows() == (
        [("sparse", batch, each, seen, 512, HEADS, 1)] * LAYERS
    )
    assert attention.select("head_dim", "cache_width").rows() == [(144, 160)] * LAYERS
    gemms = list_gemms(kernels)
    for product in ((rows, 8 * 128, 384), (rows, 128, HIDDEN), (rows, 8, HIDDEN), (rows, 128, 64), (rows, 64, 128)):
        assert gemms.count(product) == LAYERS
    assert not kernels.filter(family="gemm", n=HEADS * 128).height
    assert kernels["work_from"].null_count() == 0


def test_an_indexers_matrices_are_among_the_weights(tmp_path: Path) -> None:
    plain, indexed = (
        read_served_model(write(tmp_path, config), None, None).count_parameters() for config in (LATENT, INDEXED)
    )
    assert indexed - plain == LAYERS * (8 * 128 * 384 + HIDDEN * (128 + 8))


def test_dense_decode(tmp_path: Path) -> None:
    kernels = tabulate(write(tmp_path, DENSE), EngineStep(sequences=8, tokens=1, context=999))
    qkv, out = (HEADS + 2 * KV_HEADS) * WIDTH, HEADS * WIDTH
    layer = [(8, qkv, HIDDEN), (8, HIDDEN, out), (8, 2 * INNER, HIDDEN), (8, HIDDEN, INNER)]
    assert list_gemms(kernels) == [*layer, *layer, (8, WORDS, HIDDEN)]
    attention = kernels.filter(family="attention")
    assert attention["batch"].to_list() == [8] * LAYERS
    assert attention.select("q_len", "kv_len", "heads", "kv_heads", "head_dim").rows() == [(1, 1000, 16, 4, 64)] * 2
    assert kernels["work_from"].null_count() == 0
    assert kernels.filter(family="norm").height == 4 * LAYERS + 1  # with queries and keys
    assert kernels.filter(op="_C::silu_and_mul")["bytes"].to_list() == [3 * 8 * INNER * 2] * LAYERS


def test_modules_are_those_of_layers(tmp_path: Path) -> None:
    kernels = tabulate(write(tmp_path, DENSE), EngineStep(4, 1, 100))
    by_module = kernels.filter(family="gemm")["module"].to_list()
    assert [one.split(".")[0] for one in by_module] == ["DecoderLayer_0"] * 4 + ["DecoderLayer_1"] * 4 + ["Head"]
    assert [one.split(".")[1] for one in by_module[:4]] == ["Attention", "Attention", "Mlp", "Mlp"]


def test_prefill_samples_one_row_of_each_prompt(tmp_path: Path) -> None:
    kernels = tabulate(write(tmp_path, DENSE), EngineStep(sequences=3, tokens=500, context=0))
    assert list_gemms(kernels)[-1] == (3, WORDS, HIDDEN)
    assert list_gemms(kernels)[0][0] == 1500
    attention = kernels.filter(family="attention")
    assert attention.select("batch", "q_len", "kv_len").rows() == [(3, 500, 500)] * LAYERS
    assert attention["causal"].all()


@pytest.mark.parametrize("precision", ["fp8", "fp8_block", "nvfp4"])
def test_precision(tmp_path: Path, precision: str) -> None:
    kernels = tabulate(write(tmp_path, DENSE), EngineStep(8, 1, 100), precision, "fp8")
    gemms = kernels.filter(family="gemm")
    assert gemms["dtype"].to_list() == [precision] * (4 * LAYERS) + ["bf16"]
    assert kernels.filter(op="_C::dynamic_scaled_fp8_quant").height == 4 * LAYERS
    model = read_served_model(write(tmp_path, DENSE), precision, "fp8")
    step = EngineStep(8, 1, 100)
    wide = build_engine_step(read_served_model(write(tmp_path, DENSE), None, None), ENGINE, step).facts
    narrow = build_engine_step(model, ENGINE, step).facts
    assert narrow.parameter_bytes < wide.parameter_bytes
    cached = 8 * 101 * LAYERS * 2 * KV_HEADS * WIDTH
    assert wide.held_bytes - wide.parameter_bytes == 2 * cached
    assert narrow.held_bytes - narrow.parameter_bytes == cached


def test_latent_attention_and_experts(tmp_path: Path) -> None:
    config = write(tmp_path, LATENT)
    kernels = tabulate(config, EngineStep(sequences=8, tokens=1, context=999))
    per_head = kernels.filter(op="aten::bmm").select("batch", "m", "n", "k").rows()
    assert per_head == [(16, 8, 128, 64), (16, 8, 64, 128)] * LAYERS  # into the cache's space, and out of it
    attention = kernels.filter(family="attention")
    assert attention.select("kv_heads", "cache_width", "head_dim").rows() == [(1, 160, 144)] * LAYERS
    experts = kernels.filter(op="tracekit::expert_gemm")
    assert experts.select("n", "k", "experts", "top_k").rows() == [(1024, HIDDEN, 16, 4), (HIDDEN, 512, 16, 4)]
    prefill = tabulate(config, EngineStep(sequences=2, tokens=300, context=0))
    assert not prefill["op"].eq("aten::bmm").any()
    assert prefill.filter(family="attention").select("heads", "kv_heads").rows() == [(16, 16)] * LAYERS


def test_the_config_tells_its_precision(tmp_path: Path) -> None:
    quantised = DENSE | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert read_served_model(write(tmp_path, quantised), None, None).precision == "fp8_block"


def test_refusals(tmp_path: Path) -> None:
    config = write(tmp_path, DENSE)
    with pytest.raises(RequestError, match="int3"):
        read_served_model(config, "int3", None)
    with pytest.raises(RequestError, match="is built from"):
        read_served_model("model.py:make", None, None)
    with pytest.raises(RequestError, match="two steps"):
        ProgramOptions(decode=True, prefill=True).check()
    with pytest.raises(RequestError, match="engine"):
        ProgramOptions(cache_type="fp8").check()
    with pytest.raises(RequestError, match="batch"):
        ProgramOptions(decode=True).capture_trace(config, PredictRequest(gpu="h100-sxm", batch=1.5))


LINEAR = DENSE | {
    "full_attention_interval": 2,
    **{f"linear_num_{kind}_heads": heads for kind, heads in (("key", 2), ("value", 4))},
    **{f"linear_{kind}_head_dim": 64 for kind in ("key", "value")},
    "linear_conv_kernel_dim": 4,
}
CHANNELS, STATE = (2 * 2 + 4) * 64, 4 * 64 * 64


@pytest.mark.parametrize(
    ("step", "part", "rule_bytes", "convolution_bytes"),
    [
        # Each of 8 sequences reads and writes its state in 4 bytes, and its last 3 inputs of the convolution in 2.
        (EngineStep(8, 1, 99), "step", 8 * (2 * STATE * 4 + 12 * 64 * 2), 8 * CHANNELS * 2 * (2 + 2 * 3)),
        (EngineStep(8, 100, 0), "chunks", 8 * (2 * STATE * 4 + 1200 * 64 * 2), 8 * CHANNELS * 2 * (200 + 2 * 3)),
    ],
)
def test_every_second_layer_has_a_state(
    tmp_path: Path, step: EngineStep, part: str, rule_bytes: int, convolution_bytes: int
) -> None:
    kernels = tabulate(write(tmp_path, LINEAR), step).filter(family="linear_attention")
    columns = ("part", "batch", "q_len", "bytes")
    sizes = (step.sequences, step.tokens)
    assert kernels.select(columns).rows() == [("convolution", *sizes, convolution_bytes), (part, *sizes, rule_bytes)]
    assert kernels.select("heads", "kv_heads", "head_dim", "cols").row(1) == (4, 2, 64, 64)


def test_state_space_layers_run_in_chunks(tmp_path: Path) -> None:
    mamba = DENSE | {"model_type": "nemotron_h", "hybrid_override_pattern": "M*", "mamba_num_heads": 32}
    mamba |= {"mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "chunk_size": 128}
    kernels = tabulate(write(tmp_path, mamba), EngineStep(2, 256, 0)).filter(family="linear_attention")
    assert kernels["op"].value_counts().sort("count").rows() == [
        ("tracekit::short_convolution", 1), ("MambaChunkScanCombinedFn", 5)
    ]  # fmt: skip
    assert kernels["bytes"].null_count() == 0


def test_a_token_passes_all_stages(tmp_path: Path) -> None:
    """Of two layers the second begins with what the first sends: activations and the residual of 8 sequences."""
    model = read_served_model(write(tmp_path, DENSE), None, None)
    engine, step = ServingEngine("vllm", ranks=2, stages=2), EngineStep(8, 1, 99)
    program = prepare_run(capture_engine_step(model, engine, step, None, CaptureSetting())).program
    sent = program.kernels.filter(op="c10d::send")
    assert sent.select("bytes", "group_ranks", "module").rows() == [
        (8 * 2 * HIDDEN * 2, "[0,2]", "DecoderLayer_1.Attention")
    ]
    assert str(infer_layout(program)) == "4 ranks = dp 1 x tp 2 x pp 2"
    whole, half = (build_engine_step(model, one, step).facts for one in (ServingEngine("vllm", ranks=2), engine))
    assert half.parameter_bytes == whole.parameter_bytes / 2
    assert (whole.tokens, half.tokens) == (8, 16)  # two batches are under way


def test_groups_of_ranks_exchange_what_experts_need(tmp_path: Path) -> None:
    """2 groups of 2 ranks with 8 sequences each: the peers of both groups, 2 apart, gather 16 rows."""
    model = read_served_model(write(tmp_path, LATENT), None, None)
    engine = ServingEngine("vllm", ranks=2, expert_ranks=4)
    assert (engine.replicas, engine.world_size) == (2, 4)
    trace = capture_engine_step(model, engine, EngineStep(8, 1, 99), None, CaptureSetting())
    kernels = prepare_run(trace).program.kernels
    assert kernels.filter(op="tracekit::expert_gemm").select("batch", "m").rows() == [(4, 4)] * 2
    exchanged = kernels.filter(pl.col("op").is_in(["c10d::_allgather_base_", "c10d::_reduce_scatter_base_"]))
    of_experts = exchanged.filter(group_ranks="[0,2]")
    assert of_experts["bytes"].to_list() == [16 * HIDDEN * 2] * 2


def test_ranks_share_experts(tmp_path: Path) -> None:
    """4 ranks with 8 sequences each gather 32 rows; each has 4 of 16 experts, and of 32 x 4 pairs a quarter."""
    model = read_served_model(write(tmp_path, LATENT), None, None)
    engine = ServingEngine("vllm", expert_ranks=4)
    trace = capture_engine_step(model, engine, EngineStep(8, 1, 99), None, CaptureSetting())
    run = prepare_run(trace, framework="vllm")
    kernels = run.program.kernels
    experts = kernels.filter(op="tracekit::expert_gemm")
    assert experts.select("batch", "m", "n", "k").rows() == [(4, 8, 1024, HIDDEN), (4, 8, HIDDEN, 512)]
    exchanged = kernels.filter(family="collective").select("collective", "bytes", "ranks").rows()
    assert exchanged == [("all_gather", 32 * HIDDEN * 2, 4), ("reduce_scatter", 32 * HIDDEN * 2, 4)]
    assert str(infer_layout(run.program)) == "4 ranks = dp 4, ep 4"
    whole = build_engine_step(model, ENGINE, EngineStep(8, 1, 99)).facts.parameter_bytes
    left = build_engine_step(model, engine, EngineStep(8, 1, 99)).facts.parameter_bytes
    assert whole - left == 2 * 3 / 4 * 16 * 3 * HIDDEN * 512


@pytest.mark.parametrize(
    ("framework", "backend", "tokens", "sent"),
    [
        (
            "vllm",
            "deepep_low_latency",
            1,
            [("vllm_low_latency_dispatch", 8 * 4), ("vllm_low_latency_combine", 8 * 4 * 2)],
        ),
        ("vllm", "deepep_high_throughput", 1, [("vllm_normal_dispatch", 22 * 2), ("vllm_normal_combine", 22 * 2)]),
        ("sglang", "deepep", 1, [("deepep_low_latency_dispatch", 8 * 4), ("deepep_low_latency_combine", 8 * 4 * 2)]),
        ("sglang", "deepep", 10, [("deepep_normal_dispatch", 219 * 2), ("deepep_normal_combine", 219 * 2)]),
    ],
)
def test_deepep_sends_tokens_to_ranks_or_experts(
    tmp_path: Path, framework: str, backend: str, tokens: int, sent: list[tuple[str, int]]
) -> None:
    """Of 4 ranks, 4 experts of a token are on 4 (1 - (3/4)^4) = 2.734; low latency sends 8 bits, 4 times."""
    model = read_served_model(write(tmp_path, LATENT), None, None)
    engine = ServingEngine(framework, expert_ranks=4, backend=backend)
    program = prepare_run(
        capture_engine_step(model, engine, EngineStep(8, tokens, 99 * (tokens == 1)), None, CaptureSetting())
    ).program
    calls = list_collectives(program.kernels, 4)
    assert calls.select("exchange", "bytes", "ranks").rows() == [(name, HIDDEN * of, 4) for name, of in sent]
    assert str(infer_layout(program)) == "4 ranks = dp 4, ep 4"
    sums = program.kernels.filter(op="_moe_C::moe_sum").height
    assert sums == (0 if "low" in sent[0][0] else 1)


def test_ranks_of_a_group_send_a_part_of_its_tokens_each(tmp_path: Path) -> None:
    """2 groups of 2 ranks have 8 sequences each; a rank sends 4 to 4 experts, and gathers the other's 4 afterwards."""
    model = read_served_model(write(tmp_path, LATENT), None, None)
    engine = ServingEngine("vllm", ranks=2, expert_ranks=4, backend="deepep_low_latency")
    kernels = prepare_run(
        capture_engine_step(model, engine, EngineStep(8, 1, 99), None, CaptureSetting())
    ).program.kernels
    exchanged = kernels.filter(collective="all_to_all")
    assert exchanged.select("bytes", "ranks").rows() == [(HIDDEN * 4 * 4, 4), (HIDDEN * 4 * 4 * 2, 4)]
    gathered = kernels.filter(collective="all_gather").select("bytes", "ranks").rows()
    assert gathered == [(8 * HIDDEN * 2, 2), (8 * WORDS * 2, 2)]


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (ServingEngine("vllm", expert_ranks=1, backend="deepep"), "--ep"),
        (ServingEngine("vllm", ranks=3), "16 heads"),
        (ServingEngine("vllm", expert_ranks=3), "16 experts"),
        (ServingEngine("vllm", ranks=4, expert_ranks=2), "--tp"),
        (ServingEngine("vllm", stages=3), "2 layers"),
    ],
)
def test_what_cannot_be_shared_is_refused(tmp_path: Path, engine: ServingEngine, reason: str) -> None:
    model = read_served_model(write(tmp_path, LATENT), None, None)
    with pytest.raises(LayoutError, match=reason):
        build_engine_step(model, engine, EngineStep(1, 1, 9))


def test_one_gpu_means_a_node_of_it(tmp_path: Path) -> None:
    """All-reduces take what they take on a cluster of that GPU, which has no usual node."""
    trace, left = ProgramOptions(decode=True, seq=99).capture_trace(
        write(tmp_path, DENSE), PredictRequest(gpu="a40", tp=2, batch=4)
    )
    alone, cluster = (
        tk.predict(trace, **where, tp=2, framework=left.framework)[name].step.step_time_us
        for name, where in (("a40", {"gpu": "a40"}), ("2xa40", {"cluster": "2xa40"}))
    )
    assert alone == pytest.approx(cluster)


@pytest.mark.parametrize(
    ("cache", "kv_dtype", "most", "noted"),
    [
        ("bf16", None, None, False),
        ("fp8", "fp8", None, False),
        ("nvfp4", "nvfp4", 2.0, True),
        ("int4", "mxfp4", 2.0, True),
    ],
)
def test_attention_reads_the_caches_bytes(
    tmp_path: Path, cache: str, kv_dtype: str | None, most: float | None, noted: bool
) -> None:
    """A sequence's 100,000 keys take long enough that half the bytes are read in less time; unpacking may double it."""
    config = write(tmp_path, DENSE)
    kernels = tabulate(config, EngineStep(8, 1, 99_999), cache=cache).filter(family="attention")
    assert kernels.select("dtype", "kv_dtype", "work_high").row(0) == ("bf16", kv_dtype, most)
    wide = tabulate(config, EngineStep(8, 1, 99_999)).filter(family="attention")
    ratio = kernels["dur_ns"][0] / wide["dur_ns"][0]
    assert ratio == 1 if kv_dtype is None else 0.2 < ratio < 0.75
    facts = build_engine_step(read_served_model(config, None, cache), ENGINE, EngineStep(8, 1, 99)).facts
    assert facts.cache == (cache if noted else "")


@pytest.mark.parametrize(("precision", "dtype"), [("int4", "int4_wo"), ("mxfp4", "w4a16_mxfp4")])
def test_packed_experts_have_the_law_of_their_whole_layer(tmp_path: Path, precision: str, dtype: str) -> None:
    """Alone all 16 experts and 4 for each of 8 tokens; of 4 ranks a quarter of 32 x 4 pairs and of the experts."""
    model = read_served_model(write(tmp_path, LATENT), precision, None)
    for ranks, sizes in ((1, (8, 16, 4)), (4, (32, 4, 1))):
        trace = capture_engine_step(
            model, ServingEngine("vllm", expert_ranks=ranks), EngineStep(8, 1, 99), None, CaptureSetting()
        )
        kernels = prepare_run(trace, framework="vllm").program.kernels
        experts = kernels.filter(family="moe")
        assert experts.select("tokens", "experts", "topk").rows() == [sizes]
        assert experts.select("hidden", "inter", "dtype", "work_from").rows() == [(HIDDEN, 512, dtype, "shapes")]
        assert kernels.filter(op="tracekit::expert_gemm").is_empty()
        row = {"family": "moe", "dtype": dtype, "framework": "vllm", "hidden": HIDDEN, "inter": 512, "in_job": True}
        row |= dict(zip(("tokens", "experts", "topk"), sizes, strict=True))
        (time_us,) = predict(pl.DataFrame([row]), "h100-sxm")["time_us"]
        assert experts["dur_ns"].item() / 1e3 == pytest.approx(time_us, rel=0.3)


def test_an_engines_formats_are_others_than_a_programs() -> None:
    assert ProgramOptions(decode=True, precision="int4").capture.precision is None
    with pytest.raises(RequestError, match="int4"):
        ProgramOptions(precision="int4")
