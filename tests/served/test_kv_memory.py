"""Memory of a served model, in bytes that can be counted by hand."""

import json

import pytest

from predictors import load_gpu
from tracekit.models.llm import ModelConfig, parse_model_config
from tracekit.served.kv_memory import CacheMemory, compute_cache_memory
from tracekit.served.model import CACHE_BYTES, ServedModel

SIZES = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 1000,
}


def read(**changes: object) -> ModelConfig:
    """Read a small model."""
    return parse_model_config(json.dumps(SIZES | changes).encode(), "config.json", indexed=True)


def compute(model: ModelConfig, ranks: int = 1, item_bytes: float = 2.0) -> CacheMemory:
    """Compute its memory on an H100."""
    return compute_cache_memory(
        model,
        load_gpu("h100-sxm"),
        ranks=ranks,
        weight_bytes=1e9,
        cache_item_bytes=item_bytes,
        share=0.5,
        max_tokens=100,
        max_sequences=10,
    )


@pytest.mark.parametrize(
    ("ranks", "item_bytes", "expected"),
    [(1, 2.0, 3 * 2 * 2 * 8 * 2), (2, 2.0, 3 * 2 * 1 * 8 * 2), (8, 1.0, 3 * 2 * 1 * 8)],
    ids=["one GPU", "a head each", "heads are copied, fp8"],
)
def test_a_token_takes_keys_and_values_of_each_layer(ranks: int, item_bytes: float, expected: float) -> None:
    assert compute(read(), ranks, item_bytes).token_bytes == expected


def test_the_cache_has_what_weights_and_activations_leave() -> None:
    memory = compute(read())
    activations = 100 * (3 * 256 + 4 * 64) * 2 + 10 * 1000 * 4
    assert memory.working_bytes == activations + 2**30
    assert memory.cache_bytes == 40 * 2**30 - 1e9 - activations - 2**30
    assert memory.count_sequences(1000) == int(memory.cache_bytes // (192 * 1000))
    assert memory.count_pages(16, 160) == int(memory.cache_bytes // (192 * 16))


def test_windows_hold_no_more_than_their_tokens() -> None:
    memory = compute(read(model_type="mistral", sliding_window=100))
    assert memory.token_bytes == 0
    assert memory.compute_sequence_bytes(10**6) == 192 * 100


def test_what_experts_need_is_gathered_from_all_groups() -> None:
    """Of 100 tokens of each of 4 groups 64 numbers of 2 bytes come in, and as many go back."""
    model, more = read(), {"weight_bytes": 1e9, "cache_item_bytes": 2.0, "share": 0.5, "max_tokens": 100}
    made = [
        compute_cache_memory(model, load_gpu("h100-sxm"), ranks=1, replicas=one, max_sequences=10, **more)
        for one in (1, 4)
    ]
    assert made[1].working_bytes - made[0].working_bytes == 4 * 100 * 64 * 2 * 2


@pytest.mark.parametrize(
    ("precision", "bits"),
    [("bf16", 16), ("fp8", 8), ("fp8_block", 8 + 32 / 128**2), ("nvfp4", 4 + 8 / 16), ("mxfp4", 4 + 8 / 32)],
)
def test_formats_of_weights(precision: str, bits: float) -> None:
    """A scale of 32 bits for 128 x 128 weights, one of 8 for 16 or 32; vocabularies stay in 16 bits."""
    elements = 3 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256)
    found = ServedModel(read(), precision).count_weight_bytes(1)
    assert found == pytest.approx(elements * bits / 8 + 2 * 2 * 64_000, rel=1e-3)


@pytest.mark.parametrize(("cache_type", "item_bytes"), [("bf16", 2), ("fp16", 2), ("fp8", 1)])
def test_latent_attention_caches_one_row_whatever_the_ranks(cache_type: str, item_bytes: int) -> None:
    """512 compressed numbers and 64 rotated ones, in each of three layers."""
    sizes = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    latent = read(model_type="deepseek_v2", q_lora_rank=None, num_key_value_heads=8, **sizes)
    for ranks in (1, 8):
        assert compute(latent, ranks, CACHE_BYTES[cache_type]).token_bytes == 3 * 576 * item_bytes


def test_an_indexers_keys_lie_in_the_cache_in_fp8_with_a_scale() -> None:
    """Beside 576 numbers in 16 bits, 128 bytes and 4 in each of three layers."""
    sizes = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    indexer = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    indexed = read(model_type="deepseek_v32", q_lora_rank=None, num_key_value_heads=8, **sizes, **indexer)
    assert compute(indexed, 1, 2).token_bytes == 3 * (576 * 2 + 132)


def test_weights_are_counted_from_the_sizes() -> None:
    """A layer: queries and output 2 x 64 x 64, keys and values 2 x 64 x 16, MLP 3 x 64 x 256; 16 bits at the ends."""
    elements = 3 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256)
    assert ServedModel(read(), "fp8").count_weight_bytes(2) == (elements + 2 * 2 * 64_000) / 2


def test_a_gate_of_attention_s_output_is_as_wide_as_its_queries() -> None:
    """Three layers of 64 inputs, and 8 heads of 8."""
    plain, gated = (ServedModel(read(attn_output_gate=is_gated)) for is_gated in (False, True))
    assert gated.count_parameters() - plain.count_parameters() == 3 * 64 * 8 * 8


@pytest.mark.parametrize(
    ("cache", "head_bytes"), [("fp8", 128), ("fp8_block", 128 + 4), ("nvfp4", 64 + 8), ("int4", 64 + 4), ("bf16", 256)]
)
def test_narrow_caches_take_their_scales_besides(cache: str, head_bytes: int) -> None:
    """Of each of three layers, keys and values of two heads of 128 numbers."""
    memory = compute(read(head_dim=128), item_bytes=CACHE_BYTES[cache])
    assert memory.token_bytes == 3 * 2 * 2 * head_bytes


def test_stages_hold_their_layers_of_every_sequence() -> None:
    """Each of three stages has one of three layers, so a token takes a third, and all batches' sequences fit."""
    more = {"weight_bytes": 1e9, "cache_item_bytes": 2.0, "share": 0.5, "max_tokens": 100, "max_sequences": 10}
    one, three = (
        compute_cache_memory(read(), load_gpu("h100-sxm"), ranks=1, stages=stages, **more) for stages in (1, 3)
    )
    assert (one.token_bytes, three.token_bytes) == (192, 64)
    assert three.cache_bytes == one.cache_bytes
    assert three.count_sequences(1000) == int(one.cache_bytes // 64_000)
