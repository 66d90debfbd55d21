"""Work of an engine's kernels from the model's ``config.json``; sizes worked out by hand.

The model: 2 layers, 512 wide, 8 heads of 64 and 2 of keys and values, an MLP of 1024, a vocabulary of 2000.
"""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tests.codes import has_code, list_codes
from tracekit.errors import ModelConfigError, TracekitError
from tracekit.models.llm import ModelConfig, parse_model_config, read_model_config
from tracekit.parallelism.batch_size import scale_batch, set_context_length
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.ops.gemm_sequences import TokenSpread, count_hit_experts

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 2000,
}
MIXTURE = DENSE | {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
GEMM, ATTENTION = "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn", "flash::flash_fwd_splitkv_kernel<bf16>"
NORM, ACTIVATION, EXPERTS = "rms_norm_kernel<c10::BFloat16>", "act_and_mul_kernel<c10::BFloat16>", "fused_moe_kernel"
LAYER = (GEMM, ATTENTION, GEMM, NORM, GEMM, ACTIVATION, GEMM, NORM)
DECODE = "execute_context_0(0)_generation_4(4_400)"


def parse(given: dict[str, object]) -> ModelConfig:
    return parse_model_config(json.dumps(given).encode(), "config.json")


def serve(*names: str, mark: str = DECODE, **fields: object) -> TraceBuilder:
    """A batch whose kernels all come from one CUDA graph, 10 us each."""
    builder = TraceBuilder().annotation(mark, 0, 50).call("cudaGraphLaunch", 10, 5)
    graph = builder.events[-1]["args"]["correlation"]
    for i, name in enumerate(names):
        builder.kernel(name, 100 + 12 * i, 10, correlation=graph, **fields)
    return builder


def kernels_of(builder: TraceBuilder, given: dict[str, object]) -> pl.DataFrame:
    return prepare_run(builder.load(), model_config=write(given)).kernels


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(given: dict[str, object], name: str = "config.json") -> str:
    Path(name).write_text(json.dumps(given))
    return name


def test_each_gemm_of_a_dense_model():
    kernels = kernels_of(serve(*LAYER, *LAYER, GEMM), DENSE)
    gemms = kernels.filter(pl.col("family") == "gemm")
    # Query, keys and values: (8 + 2 + 2) x 64; output; gate and input; out of the MLP.
    layer = [(4, 768, 512), (4, 512, 512), (4, 2048, 512), (4, 512, 1024)]
    assert gemms.select("m", "n", "k").rows() == [*layer, *layer, (4, 2000, 512)]
    assert set(kernels["work_from"]) == {"model"}


@pytest.mark.parametrize("key", ["interleave_moe_layer_step", "decoder_sparse_step"])
def test_every_other_layer_has_experts_and_not_the_first(key):
    layers = parse(MIXTURE | {"num_hidden_layers": 4, key: 2}).layers
    assert [layer.experts for layer in layers] == [0, 16, 0, 16]


def test_matrices_that_are_not_fused():
    apart = (GEMM, GEMM, GEMM, ATTENTION, GEMM, GEMM, GEMM, GEMM)
    gemms = kernels_of(serve(*apart, *apart), DENSE).filter(pl.col("family") == "gemm")
    layer = [(512, 512), (128, 512), (128, 512), (512, 512), (1024, 512), (1024, 512), (512, 1024)]
    assert gemms.select("n", "k").rows() == [*layer, *layer]


def test_attention_by_the_keys_that_the_mark_counts():
    row = kernels_of(serve(*LAYER, *LAYER), DENSE).filter(pl.col("family") == "attention").row(0, named=True)
    sizes = ("batch", "heads", "kv_heads", "head_dim", "q_len", "kv_len", "paged", "causal")
    assert [row[name] for name in sizes] == [4, 8, 2, 64, 1, 100, True, False]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("execute_context_2(600)_generation_0(0)", (2, 300, 300, True)),
        ("execute_context_2(600_180000)_generation_0(0)", (2, 300, 300, True)),
        ("execute_300_context_1(sq100sk400sqsq10000sqsk40000)_generation_0(sq0sk0sqsq0sqsk0)", (1, 100, 400, True)),
        ("execute_context_0(0)_generation_4(4)", None),
    ],
)
def test_attention_of_other_marks(mark: str, expected: tuple[object, ...] | None):
    row = kernels_of(serve(*LAYER, *LAYER, mark=mark), DENSE).filter(pl.col("family") == "attention").row(0, named=True)
    found = tuple(row[name] for name in ("batch", "q_len", "kv_len", "causal"))
    assert found == expected if expected else row["work_from"] is None


def test_keys_of_a_decode_step_are_those_that_the_trace_has_shown():
    """Two prompts of 100 tokens in all; the second decode step sees them and two tokens more of each."""
    builder = TraceBuilder()
    marks = ("execute_context_2(100)_generation_0(0)", *["execute_context_0(0)_generation_2(2)"] * 2)
    for i, mark in enumerate(marks):
        start = 1000.0 * i
        builder.annotation(mark, start, 500).call("cudaGraphLaunch", start + 10, 5)
        graph = builder.events[-1]["args"]["correlation"]
        for j, name in enumerate((*LAYER, *LAYER)):
            builder.kernel(name, start + 100 + 12 * j, 10, correlation=graph)
    attention = kernels_of(builder, DENSE).filter(pl.col("family") == "attention").sort("ts_ns")
    assert attention["kv_len"].to_list() == [50, 50, 51, 51, 52, 52]


def test_passes_are_as_wide_as_what_lies_between_the_gemms():
    kernels = kernels_of(serve(*LAYER, *LAYER), DENSE)
    norm, activation = (kernels.filter(pl.col("name") == name).row(0, named=True) for name in (NORM, ACTIVATION))
    assert (norm["rows"], norm["cols"], norm["bytes"]) == (4, 512, 4 * 512 * 4 * 2)  # and the residual, in and out
    assert (activation["rows"], activation["cols"], activation["bytes"]) == (4, 1024, 4 * 1024 * 3 * 2)
    assert norm["work_low"] < 1 < norm["work_high"]


def test_experts_and_their_router():
    layer = (GEMM, ATTENTION, GEMM, GEMM, EXPERTS, ACTIVATION, EXPERTS)
    kernels = kernels_of(serve(*layer, *layer), MIXTURE)
    router = kernels.filter(pl.col("family") == "gemm").row(2, named=True)
    assert (router["m"], router["n"], router["k"]) == (4, 16, 512)
    # 4 tokens of 2 experts each hit 16 x (1 - (7/8) ** 4) = 6.6 experts.
    experts = kernels.filter(pl.col("name") == EXPERTS)
    assert experts.select("batch", "m", "n", "k", "tokens", "experts", "top_k").rows()[:2] == [
        (7, 2, 256, 512, 4, 16, 2),
        (7, 2, 512, 128, 4, 16, 2),
    ]


def test_experts_are_as_narrow_as_the_cast_before_them():
    cast = "scaled_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>"
    layer = (GEMM, ATTENTION, GEMM, GEMM, cast, EXPERTS, ACTIVATION, cast, EXPERTS)
    assert set(kernels_of(serve(*layer, *layer), MIXTURE).filter(pl.col("name") == EXPERTS)["dtype"]) == {"fp8"}


def test_ranks_that_share_each_layer_have_their_part_of_it():
    collective = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>"
    layer = (GEMM, ATTENTION, GEMM, collective, NORM, GEMM, ACTIVATION, GEMM, collective, NORM)
    builder = serve(*layer, *layer)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 2}
    gemms = kernels_of(builder, DENSE).filter(pl.col("family") == "gemm")
    assert gemms.select("n", "k").rows()[:4] == [(384, 512), (512, 256), (1024, 512), (512, 512)]


@pytest.mark.parametrize(
    ("names", "code", "seen"),
    [
        (LAYER, "fit-layers-differ", 1),
        ((*LAYER, *LAYER, *LAYER), "fit-layers-differ", 3),
        ((*LAYER, *[GEMM] * 5, *LAYER), "fit-gemms-differ", 9),
        ((*LAYER, GEMM, *LAYER), "fit-ends-differ", 5),
        ((*LAYER, *LAYER, GEMM, GEMM), "fit-ends-differ", 4),
    ],
)
def test_of_another_model_the_first_count_that_differs_is_said(names, code, seen):
    """The model has two layers with four GEMMs each."""
    run = prepare_run(serve(*names).load(), model_config=write(DENSE))
    assert not (run.kernels["work_from"] == "model").any()
    (warning,) = [one for one in build_report(run).warnings if one.code == "config-without-fit"]
    difference = warning.values["difference"]
    assert (difference.code, difference.values["seen"]) == (code, seen)


def test_a_trace_without_batches_is_said_to_have_none():
    run = prepare_run(TraceBuilder().kernel(GEMM, 20, 10, launch=10).load(), model_config=write(DENSE))
    (warning,) = [one for one in build_report(run).warnings if one.code == "config-without-fit"]
    assert warning.values["difference"].code == "fit-without-batches"


def test_work_that_shapes_tell_stays():
    builder = TraceBuilder().annotation(DECODE, 0, 50)
    builder.op("aten::mm", 1, 20, dims=[[3, 99], [99, 77]], types=["c10::BFloat16"] * 2)
    builder.kernel(GEMM, 60, 10, launch=5).call("cudaGraphLaunch", 30, 5)
    graph = builder.events[-1]["args"]["correlation"]
    for i, name in enumerate((ATTENTION, *LAYER[2:], *LAYER)):
        builder.kernel(name, 100 + 12 * i, 10, correlation=graph)
    first, *others = kernels_of(builder, DENSE).sort("ts_ns").iter_rows(named=True)
    assert (first["m"], first["n"], first["k"], first["work_from"]) == (3, 77, 99, "shapes")
    assert {row["work_from"] for row in others} == {"model"}


def test_a_larger_batch_reads_more_experts():
    layer = (GEMM, ATTENTION, GEMM, GEMM, EXPERTS, ACTIVATION, EXPERTS)
    run = prepare_run(serve(*layer, *layer).load(), model_config=write(MIXTURE))
    experts = scale_batch(run.kernels, run.trace.ops, 4).filter(pl.col("name") == EXPERTS)
    # 16 tokens: 16 x (1 - (7/8) ** 16) = 14.1 experts.
    assert experts.select("batch", "m", "tokens").unique().rows() == [(14, 3, 16)]


def test_the_config_may_lie_among_the_traces(tmp_path):
    Path("job").mkdir()
    serve(*LAYER, *LAYER).save(tmp_path / "job" / "trace.json")
    write(DENSE, "job/config.json")
    for inputs in ("job", ["job/trace.json", "job/config.json"]):
        assert set(prepare_run(tk.load(inputs)).kernels["work_from"]) == {"model"}
    assert tk.load("job/trace.json").rank().model is None


def test_one_that_is_not_understood_is_left_out_of_a_folder_and_refused_by_name(tmp_path):
    Path("job").mkdir()
    serve(*LAYER, *LAYER).save(tmp_path / "job" / "trace.json")
    write(DENSE | {"index_topk": 2048}, "job/config.json")
    assert "config-skipped" in list_codes(tk.load("job").warnings)
    with pytest.raises(ModelConfigError) as raised:
        tk.load(["job/trace.json", "job/config.json"])
    assert raised.value.code == "config-layers"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[1]", "config-not-json"),
        ("{", "config-not-json"),
        ("[" * 100_000, "config-not-json"),
        (json.dumps({"num_hidden_layers": 2}), "config-key-missing"),
        (json.dumps(DENSE | {"hidden_size": -1}), "config-size"),
        (json.dumps(DENSE | {"hidden_size": "512"}), "config-size"),
        (json.dumps(DENSE | {"num_attention_heads": 0}), "config-size"),
        (json.dumps(DENSE | {"num_hidden_layers": 10**6}), "config-size"),
        (json.dumps(DENSE | {"hidden_size": 2**40}), "config-size"),
        (json.dumps(DENSE | {"layer_types": ["recurrent", "full_attention"]}), "config-layers"),
        (json.dumps(DENSE | {"layer_types": ["linear_attention", "full_attention"]}), "config-key-missing"),
        (json.dumps(DENSE | {"kv_lora_rank": 512}), "config-key-missing"),
        (json.dumps(DENSE | {"hybrid_override_pattern": "M-"}), "config-key-missing"),
        (json.dumps(DENSE | {"hybrid_override_pattern": "-M"}), "config-layers"),
        (json.dumps(DENSE | {"hybrid_override_pattern": "ME"}), "config-layers"),
        (json.dumps(MIXTURE | {"num_experts_per_tok": 17}), "config-size"),
        (" " * (1 << 23), "config-too-large"),
    ],
)
def test_impossible_configs(text: str, code: str):
    Path("config.json").write_text(text)
    with pytest.raises(ModelConfigError) as raised:
        read_model_config("config.json")
    assert raised.value.code == code


def test_layers_of_several_kinds():
    types = ["sliding_attention", "full_attention", "full_attention"]
    model = parse(
        MIXTURE | {"num_hidden_layers": 3, "first_k_dense_replace": 1, "layer_types": types, "sliding_window": 128}
    )
    assert [(layer.window, layer.experts, layer.mlp_width) for layer in model.layers] == [
        (128, 0, 1024),
        (None, 16, 128),
        (None, 16, 128),
    ]
    inner = {"model_type": "x", "text_config": MIXTURE | {"n_shared_experts": 2, "mlp_only_layers": [1]}}
    assert [(layer.experts, layer.shared_width) for layer in parse(inner).layers] == [(16, 256), (0, 0)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    base=st.sampled_from([DENSE, MIXTURE]),
    changes=st.dictionaries(st.sampled_from([*MIXTURE, "layer_types", "text_config"]), JSON),
)
def test_any_values_are_read_or_refused(base, changes):
    try:
        layers = parse(base | changes).layers
    except ModelConfigError:
        layers = ()
    assert all(0 <= layer.top_k <= layer.experts for layer in layers)


@given(tokens=st.integers(1, 10**6), experts=st.integers(1, 512), part=st.floats(0, 1))
def test_tokens_hit_at_least_their_own_experts_and_at_most_all(tokens, experts, part):
    top_k = max(round(part * experts), 1)
    hit = count_hit_experts(tokens, experts, top_k)
    assert top_k * (1 - 1e-9) <= hit <= min(experts, tokens * top_k) * (1 + 1e-9)
    spread = TokenSpread(tokens, experts, top_k)
    columns = spread.build_columns(8, 8)
    assert columns["batch"] * columns["m"] >= tokens * top_k
    assert spread.bounds[0] <= 1 <= spread.bounds[1]


def test_the_kernel_table_without_a_config_is_as_before():
    kernels = build_kernel_table(serve(*LAYER, *LAYER).load().rank())
    assert not (kernels["work_from"] == "model").any()


def test_a_longer_context_changes_attention_alone():
    run = prepare_run(serve(*LAYER, *LAYER).load(), model_config=write(DENSE))
    longer = set_context_length(run.kernels, 8192)
    assert longer.filter("changed").select("family", "q_len", "kv_len").unique().rows() == [("attention", 1, 8192)]
    assert longer.drop("changed", "kv_len").equals(run.kernels.drop("kv_len"))
    assert not set_context_length(run.kernels, 100)["changed"].any()


def test_a_longer_context_never_is_faster():
    trace, config = serve(*LAYER, *LAYER).load(), write(DENSE)
    times = [
        tk.predict(trace, gpu="a100-sxm-80gb", model_config=config, context=keys).targets[0].step.step_time_us
        for keys in (100, 1_000, 10_000, 100_000)
    ]
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_a_prefill_has_no_context_to_change():
    trace = serve(*LAYER, *LAYER, mark="execute_context_2(600)_generation_0(0)").load()
    with pytest.raises(TracekitError, check=has_code("context-unknown")):
        tk.predict(trace, gpu="h100-sxm", model_config=write(DENSE), context=4096)
