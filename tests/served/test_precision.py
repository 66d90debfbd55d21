"""Formats of a served model by its config."""

import json
from typing import Any

import pytest

from tests.served.test_engine_step import DENSE, LATENT, LAYERS
from tracekit.errors import RequestError
from tracekit.served.engine_kernels import StepSizes
from tracekit.served.model import ServedModel, ServingEngine
from tracekit.served.precision import parse_served_model
from tracekit.served.steps import count_launches

GPT_OSS = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}
KIMI = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
}
FLOAT8 = {"weights": {"num_bits": 8, "type": "float"}}


def parse(quantised: dict[str, Any], config: dict[str, Any] = DENSE, precision: str | None = None) -> ServedModel:
    text = json.dumps(config | {"quantization_config": quantised}).encode()
    return parse_served_model(text, "config.json", precision, None)


@pytest.mark.parametrize(
    ("quantised", "precision"),
    [
        (GPT_OSS, "mxfp4"),
        (KIMI, "int4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"0": FLOAT8}}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ],
)
def test_formats(quantised: dict[str, Any], precision: str) -> None:
    assert parse(quantised).precision == precision


@pytest.mark.parametrize("quantised", [{"quant_method": "gptq", "bits": 8}, {"quant_method": "bitsandbytes"}, {}])
def test_unknown_formats_are_refused(quantised: dict[str, Any]) -> None:
    if not quantised:
        assert parse(quantised).precision == "bf16"
        return
    with pytest.raises(RequestError, match=quantised["quant_method"]):
        parse(quantised)


def test_parts_stay_in_16_bits() -> None:
    assert parse(GPT_OSS).plain == {"attention"}
    assert parse(KIMI).plain == {"attention", "shared", "dense"}
    each = [f"model.layers.{layer}.self_attn.q_proj" for layer in range(LAYERS)]
    assert parse(GPT_OSS | {"modules_to_not_convert": each}).plain == {"attention"}
    assert parse(GPT_OSS | {"modules_to_not_convert": ["model.layers.0.mlp.gate"]}).plain == frozenset()
    assert parse(GPT_OSS, precision="fp8").plain == frozenset()


def test_the_cache_is_as_the_config_says() -> None:
    assert parse({**KIMI, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}).cache_type == "fp8"
    assert parse({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}).cache_type == "fp8"
    assert (
        parse({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}).cache_type == "nvfp4"
    )
    assert parse({**KIMI, "kv_cache_scheme": {"num_bits": 4, "type": "int"}}).cache_type == "int4"
    assert parse({**KIMI, "kv_cache_scheme": {"num_bits": 4, "type": "float"}}).cache_type == "nvfp4"
    assert parse(KIMI).cache_type == "bf16"


def test_only_experts_are_stored_in_4_bits() -> None:
    """A step casts no input, and reads the experts' weights packed; the model takes that much memory."""
    model = parse(KIMI, LATENT)
    calls, _ = count_launches(model, ServingEngine("vllm"), [StepSizes(0, 0, 8, 99)])
    assert not [call for call in calls if "quant" in call.op]
    (packed,) = (call for call in calls if "expert" in call.op)
    assert (packed.op, packed.dims[:2]) == ("tracekit::packed_experts", [[8, 1024], [16, 512, 1024]])
    assert packed.concrete[-2:] == ["4", '"int4"']
    of_pairs = [call.op for call in calls if call.dims[0][:1] == [32]]
    assert of_pairs == []
    wide, narrow = ServedModel(model.config).count_weight_bytes(1), model.count_weight_bytes(1)
    experts = 16 * 3 * 1024 * 512
    assert wide - narrow == experts * (2 - (0.5 + 2 / 128))


@pytest.mark.parametrize(("left_out", "plain"), [(1, frozenset()), (2, {"attention"})])
def test_what_half_of_the_layers_leave_out_is_in_sixteen_bits(left_out: int, plain: set[str]) -> None:
    """Of four layers; fewer leave it out as the first or last one often is."""
    names = [f"model.layers.{number}.self_attn" for number in range(left_out)]
    found = parse({"quant_method": "fp8", "ignored_layers": names}, DENSE | {"num_hidden_layers": 4})
    assert (found.precision, found.plain) == ("fp8", plain)
