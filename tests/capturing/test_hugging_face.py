"""Inputs of models that a config tells; what needs transformers is left out where that is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import tracekit as tk
from tests.codes import has_code
from tracekit.capturing import hugging_face
from tracekit.capturing.load import load_config_model
from tracekit.capturing.loaded_program import LoadedProgram
from tracekit.capturing.options import CaptureOptions
from tracekit.capturing.program import capture
from tracekit.capturing.steps import NamedProgram
from tracekit.capturing.timed_trace import load_captured
from tracekit.errors import CaptureError

TEXT = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 512}
SEEN = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
LLAVA = {
    "model_type": "llava",
    "image_token_index": 500,
    "text_config": TEXT | {"model_type": "llama", "num_key_value_heads": 2},
    "vision_config": SEEN | {"model_type": "clip_vision_model", "image_size": 56},
}


def load(folder: Path, config: dict[str, Any], tokens: int = 64) -> LoadedProgram:
    """Load a config's model for a training step of two sequences."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return load_config_model(path, 2, tokens, "bf16", training=True)


def test_an_images_tokens_stand_among_the_words(tmp_path: Path) -> None:
    """56 pixels in patches of 14 are 16 tokens."""
    given = load(tmp_path, LLAVA)
    assert given.keywords
    assert given.keywords["pixel_values"].shape == (2, 3, 56, 56)
    assert (given.keywords["input_ids"] == 500).sum(-1).tolist() == [16, 16]
    assert given.tokens == 64
    ops = {call.op for call in capture(given.model, training=True, keywords=given.keywords).calls}
    assert {"aten::convolution", "aten::masked_scatter", "aten::embedding_dense_backward"} <= ops


def test_a_sequence_shorter_than_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, check=has_code("sequence-without-image")):
        load(tmp_path, LLAVA, tokens=16)


def test_images_in_no_known_form_are_left_out_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(tmp_path, LLAVA).left_out == ()
    monkeypatch.setattr(hugging_face, "TILES", ())
    given = load(tmp_path, LLAVA)
    assert (given.left_out, sorted(given.keywords or ())) == (("images",), ["input_ids", "labels"])
    step = NamedProgram(str(tmp_path / "config.json"), CaptureOptions(seq=64)).capture_batch(2)
    (found,) = tk.predict(load_captured(step), gpu="h100-sxm").targets
    (told,) = (one for one in found.notes if one.code == "left-out-of-capture")
    assert "images" in str(told)


def test_sounds_beside_words_are_left_out_with_a_note(tmp_path: Path) -> None:
    heard = {"model_type": "qwen2_audio_encoder", "d_model": 64, "encoder_layers": 1, "encoder_ffn_dim": 64}
    heard |= {"encoder_attention_heads": 2}
    text = TEXT | {"model_type": "qwen2", "num_key_value_heads": 2}
    given = load(tmp_path, {"model_type": "qwen2_audio", "audio_config": heard, "text_config": text})
    assert given.left_out == ("sounds",)


@pytest.mark.parametrize(
    ("config", "inputs", "tokens"),
    [
        (
            {"model_type": "bart", "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 512},
            {"input_ids": (2, 64), "decoder_input_ids": (2, 64), "labels": (2, 64)},
            64,
        ),
        (
            {"model_type": "whisper", "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 80}
            | {"encoder_attention_heads": 2, "decoder_attention_heads": 2},
            {"input_features": (2, 80, 3000), "decoder_input_ids": (2, 64), "labels": (2, 64)},
            64,
        ),
        (
            SEEN | {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 56},
            {"pixel_values": (2, 3, 56, 56), "labels": (2,)},
            0,
        ),
    ],
)
def test_each_kind_of_model_gets_its_inputs(
    tmp_path: Path, config: dict[str, Any], inputs: dict[str, tuple[int, ...]], tokens: int
) -> None:
    given = load(tmp_path, config)
    assert given.keywords
    assert not given.left_out
    shapes = {name: tuple(one.shape) for name, one in given.keywords.items() if name != "use_cache"}
    assert (shapes, given.tokens) == (inputs, tokens)
    assert capture(given.model, training=True, keywords=given.keywords).facts.trains


def test_a_draft_model_gets_a_token_and_the_keys_before_it(tmp_path: Path) -> None:
    text = TEXT | {"model_type": "gemma4_text", "num_key_value_heads": 1, "head_dim": 32, "global_head_dim": 64}
    text |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_hidden_layers": 2}
    text |= {"layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 2}
    given = load(tmp_path, {"model_type": "gemma4_assistant", "backbone_hidden_size": 96, "text_config": text})
    assert given.keywords
    keys = {kind: [tuple(one.shape) for one in pair] for kind, pair in given.keywords["shared_kv_states"].items()}
    assert keys == {"sliding_attention": [(2, 1, 64, 32)] * 2, "full_attention": [(2, 1, 64, 64)] * 2}
    assert (given.keywords["inputs_embeds"].shape, given.tokens) == ((2, 1, 2 * 96), 1)
    assert given.left_out == ("all tokens but one of each sequence",)
    capture(given.model, training=True, keywords=given.keywords)


def test_bytes_come_in_patches_of_the_configs_size(tmp_path: Path) -> None:
    parts = {
        f"{part}_config": TEXT | {"vocab_size": 260, "hidden_size_global": 64}
        for part in ("patcher", "encoder", "decoder", "global")
    }
    config = {"model_type": "blt", "patch_size": 4, "encoder_hash_byte_group_vocab": 128} | parts
    given = load(tmp_path, config, tokens=12)
    assert given.keywords
    assert given.keywords["patch_lengths"].tolist() == [[1, 4, 4, 3]] * 2
    assert given.left_out == ("the model that cuts bytes into patches",)
    capture(given.model, training=True, keywords=given.keywords)


def test_mambas_scan_is_one_kernel_each_way(tmp_path: Path) -> None:
    """transformers without mamba-ssm goes through the tokens one by one."""
    config = {"model_type": "mamba", "hidden_size": 64, "state_size": 8, "num_hidden_layers": 2, "vocab_size": 512}
    given = load(tmp_path, config)
    calls = [call for call in capture(given.model, training=True, keywords=given.keywords).calls if "Scan" in call.op]
    assert [call.op for call in calls] == ["SelectiveScanFn"] * 2 + ["SelectiveScanFnBackward"] * 2
    assert (calls[0].dims[0], calls[0].dims[2]) == ([2, 128, 64], [128, 8])
