"""Which of transformers' classes a config stands for, and inputs that its model takes, told by names and sizes there.

Ids, masks and labels have values (:mod:`tracekit.capturing.known_values`), images and sounds none. A sequence of a
vision-language model has one image of the config's size, whose tokens count among its own.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tracekit.capturing.known_values import KnownValues, ReadingMode
from tracekit.errors import CaptureError
from tracekit.messages import models as messages

LANGUAGE = ("AutoModelForCausalLM", "AutoModelForMaskedLM")
SEQUENCE_TO_SEQUENCE = ("AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq")
IMAGE_AND_TEXT = ("AutoModelForImageTextToText", "AutoModelForMultimodalLM")
OTHERS = (
    *("AutoModelForCTC", "AutoModelForImageClassification", "AutoModelForAudioClassification"),
    *("AutoModelForObjectDetection", "AutoModelForSemanticSegmentation", "AutoModelForDepthEstimation"),
    "AutoModelForSequenceClassification",
)
WHOLE = "AutoModel"
PRETRAINING, MASKED = "ForPreTraining", "AutoModelForMaskedLM"
"""Ending of heads with a second task, which nobody trains today, and what is taken for them."""

ROWS, COLUMNS = "height", "width"
IMAGE_PIXELS = 224
PATCHES_ACROSS = 32
"""Of an image that a model takes at any size: 448 pixels across with patches of 14."""
TILES: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (5,))
"""Tiles that an image is cut into, the whole one among them."""
SOUND_SAMPLES = 160_000
"""Of a sound whose length no config tells: 10 s at 16 kHz."""
SOUND_FRAMES, MEL_BINS = 3000, 80
"""Of a spectrogram that no config tells: 30 s in hops of 10 ms, Whisper's."""
MEL_KEYS = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim")
LABEL_TOKENS = 32
"""Of a transcript of a sound."""
MAX_WORDS = 4096
"""Different words of the inputs."""
IMAGE_WORDS = ("image_token_id", "image_token_index")
MARKS = ("token_type_ids", "mm_token_type_ids")
"""Arguments that mark an image's tokens."""
MEDIA = {"images": ("pixel_values",), "sounds": ("input_features", "input_values")}
"""What a model may take beside words -> parts of the names of its arguments."""
PATCHES, PATCHER = "patch_lengths", "the model that cuts bytes into patches"
"""BLT's argument for what its patcher finds. Where it cuts, values decide; here patches have their config's size."""
SHARED_KEYS, OTHER_TOKENS = "shared_kv_states", "all tokens but one of each sequence"
"""Argument of a model that drafts tokens for another and reads its keys and values; what its step lacks."""
POSITIONS = ("max_target_positions", "max_position_embeddings", "n_positions", "max_sequence_length")
"""Keys of a config that tell how many tokens a decoder's sequence may have."""


@dataclass(frozen=True)
class ConfigInputs:
    """Inputs of a config's model.

    Attributes:
        keywords: Arguments of its forward pass.
        tokens: Tokens of each sequence; 0 where there are none.
        left_out: What the model takes, too, and isn't given.
    """

    keywords: dict[str, Any]
    tokens: int
    left_out: tuple[str, ...] = ()


def choose_class(transformers: Any, config: Any, architecture: str) -> Any:
    """Return the class of a config's model: the one that it names, else the automatic one that its kind has."""
    known = getattr(transformers, architecture, None) if architecture else None
    if architecture.endswith(PRETRAINING) and _has_head(transformers, MASKED, config):
        return getattr(transformers, MASKED)
    if isinstance(known, type) and issubclass(known, transformers.PreTrainedModel):
        return known
    return getattr(transformers, next(one for one in _list_heads(config) if _has_head(transformers, one, config)))


def _list_heads(config: Any) -> Iterator[str]:
    if getattr(config, "is_encoder_decoder", False):
        yield from SEQUENCE_TO_SEQUENCE
    if getattr(config, "vision_config", None) is not None:
        yield from IMAGE_AND_TEXT
    yield from (*LANGUAGE, *SEQUENCE_TO_SEQUENCE, *IMAGE_AND_TEXT, *OTHERS, WHOLE)


def _has_head(transformers: Any, head: str, config: Any) -> bool:
    automatic = getattr(transformers, head, None)
    return head == WHOLE or (automatic is not None and type(config) in automatic._model_mapping)


def build_inputs(model: Any, batch: int, tokens: int, *, training: bool) -> ConfigInputs:
    """Build what a model's forward pass takes; its own type is that of images and sounds.

    Args:
        model: The model, on the meta device.
        batch: Samples.
        tokens: Of each sequence.
        training: Whether the labels are given too, so that it returns its loss.

    Raises:
        CaptureError: A sequence has no room for an image's tokens.
    """
    names = signature(model.forward).parameters
    keywords, places = _build_images(model, batch, names)
    if model.main_input_name not in ("input_ids", "pixel_values"):
        keywords = _build_sounds(model, batch, names)
    hears = "input_features" in keywords or "input_values" in keywords
    words = None
    own, lacking = _build_own_arguments(model, batch, tokens, names)
    if "input_ids" in names and SHARED_KEYS not in own and not (hears and "decoder_input_ids" in names):
        words = keywords["input_ids"] = _build_words(model.config, batch, tokens, places)
        keywords |= {name: (words == places.word).long() for name in MARKS if places.count and name in names}
    written = None
    if "decoder_input_ids" in names:
        written = _build_words(model.config, batch, min(tokens, _count_positions(model.config) or tokens))
    if training and "labels" in names:
        keywords["labels"] = _build_labels(model, batch, words if written is None else written)
    if written is not None:
        keywords["decoder_input_ids"] = written
    if "use_cache" in names:
        keywords["use_cache"] = False
    keywords |= own
    read = keywords.get("inputs_embeds", written) if words is None else words
    left_out = (one for one, parts in MEDIA.items() if _has_any(names, parts) and not _has_any(keywords, parts))
    return ConfigInputs(keywords, 0 if read is None else read.shape[1], (*left_out, *lacking))


def _has_any(names: Iterable[str], parts: Iterable[str]) -> bool:
    """Return whether one of the names has one of the parts."""
    return any(part in name for part in parts for name in names)


@dataclass(frozen=True)
class _ImagePlaces:
    """Where a sequence has an image.

    Attributes:
        word: What stands there.
        count: Tokens of an image; 0 for none.
    """

    word: int = 0
    count: int = 0


NO_IMAGE = _ImagePlaces()


def _build_words(config: Any, batch: int, tokens: int, places: _ImagePlaces = NO_IMAGE) -> Tensor:
    """Build ordinary words, and an image's."""
    if places.count >= tokens:
        raise CaptureError(messages.SEQUENCE_WITHOUT_IMAGE(tokens=tokens, image=places.count))
    text = config.get_text_config()
    special = set(_list_special(config.to_dict()))
    ordinary = torch.tensor([one for one in range(min(text.vocab_size, MAX_WORDS)) if one not in special] or [0])
    words = ordinary[torch.arange(batch * tokens) % len(ordinary)].view(batch, tokens)
    words[:, 1 : 1 + places.count] = places.word
    return words


def _list_special(config: Mapping[str, Any]) -> Iterator[int]:
    """List the words that a config gives a meaning, such as the end of a text or an image."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _list_special(value)
        elif str(key).endswith(("_token_id", "_token_index")):
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, int))


def _build_labels(model: Any, batch: int, words: Tensor | None) -> Tensor:
    head = type(model).__name__
    if words is not None and not head.endswith("Classification"):
        return words.clone()
    return torch.ones((batch, LABEL_TOKENS) if head.endswith("ForCTC") else batch, dtype=torch.int64)


def _build_own_arguments(
    model: Any, batch: int, tokens: int, names: Container[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Build the arguments that only one kind of model has, and tell what a step with them lacks."""
    if SHARED_KEYS in names:
        return _build_draft_inputs(model, batch, tokens), (OTHER_TOKENS,)
    if getattr(model.config, "patching_mode", None):
        return {PATCHES: _build_patches(model.config.patch_size, batch, tokens)}, (PATCHER,)
    return {}, ()


def _build_patches(size: int, batch: int, tokens: int) -> Tensor:
    """Build the lengths of the patches of BLT's bytes: the first byte alone, then ``size`` each."""
    ends = [*range(1, tokens, size), tokens]
    return torch.tensor([1, *np.diff(ends).tolist()]).repeat(batch, 1)


def _build_draft_inputs(model: Any, batch: int, tokens: int) -> dict[str, Any]:
    """Build what a draft model reads of the model that it drafts for: a token's states, the keys of all before it.

    It drafts one token after the other.
    """
    config, dtype = model.config.get_text_config(), _find_dtype(model)
    states = torch.empty(batch, 1, model.pre_projection.in_features, dtype=dtype, device="meta")
    keys = {}
    for kind, layer in zip(config.layer_types, config.per_layer_config, strict=True):
        shape = (batch, layer.num_key_value_heads, tokens, layer.head_dim)
        keys[kind] = tuple(torch.empty(shape, dtype=dtype, device="meta") for _ in range(2))
    return {"inputs_embeds": states, SHARED_KEYS: keys}


def _count_positions(config: Any) -> int | None:
    """Return how many tokens a decoder's sequence may have; None where nothing tells."""
    text = config.get_text_config(decoder=True)
    return next((found for name in POSITIONS if isinstance(found := getattr(text, name, None), int)), None)


def _build_images(model: Any, batch: int, names: Container[str]) -> tuple[dict[str, Any], _ImagePlaces]:
    """Build an image for each sample, in the form that the model takes, and where it stands in a sequence."""
    if "pixel_values" not in names:
        return {}, NO_IMAGE
    config = model.config
    word = next((found for name in IMAGE_WORDS if isinstance(found := getattr(config, name, None), int)), None)
    read = _find_reader(model)
    forms = list(_list_image_forms(config, batch, names, _find_dtype(model)))
    if read is None or word is None:
        return forms[0], NO_IMAGE
    for form in forms:
        with suppress(Exception):  # each model has errors of its own
            features = _try_out(read, form)
            return form, _ImagePlaces(word, _count_rows(features, config.get_text_config().hidden_size) // batch)
    return {}, NO_IMAGE


def _find_reader(model: Any) -> Any:
    """Return what makes an image's tokens."""
    inner = getattr(model, "model", model)
    return next((found for one in (model, inner) if (found := getattr(one, "get_image_features", None))), None)


def _find_dtype(model: Any) -> torch.dtype:
    return next((one.dtype for one in model.parameters() if one.is_floating_point()), torch.float32)


def _list_image_forms(config: Any, batch: int, names: Container[str], dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    """List the forms in which transformers' models take images: whole, in tiles, or as patches in a row."""
    seen = getattr(config, "vision_config", None) or config
    size = getattr(seen, "image_size", None) or IMAGE_PIXELS
    size = (size[ROWS], size[COLUMNS]) if isinstance(size, Mapping) else size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(seen, "num_channels", None) or getattr(seen, "in_channels", None) or 3
    sizes = {"image_sizes": torch.tensor([[height, width]] * batch)}
    if "image_grid_thw" in names:
        patch, frames = seen.patch_size, getattr(seen, "temporal_patch_size", 1)
        rows = torch.empty(batch * PATCHES_ACROSS**2, channels * frames * patch**2, dtype=dtype, device="meta")
        yield {"pixel_values": rows, "image_grid_thw": torch.tensor([[1, PATCHES_ACROSS, PATCHES_ACROSS]] * batch)}
    for tiles in TILES:
        pixels = torch.empty(batch, *tiles, channels, height, width, dtype=dtype, device="meta")
        yield {"pixel_values": pixels}
        if "image_sizes" in names:
            yield {"pixel_values": pixels} | sizes


def _try_out(read: Any, keywords: Mapping[str, Any]) -> Any:
    """Run a part of a model on tensors without data."""
    values = KnownValues()
    given = values.move_to_meta(dict(keywords))
    taken = signature(read).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    with torch.no_grad(), torch.device("meta"), ReadingMode(values):
        return read(**{name: one for name, one in given.items() if takes_all or name in taken})


def _count_rows(features: Any, width: int) -> int:
    """Count the tokens that an image's features are."""
    found = getattr(features, "pooler_output", None)
    tensors = [one for one in tree_leaves(features if found is None else found) if isinstance(one, Tensor)]
    return sum(prod(one.shape[:-1]) for one in tensors if one.shape[-1] == width)


def _build_sounds(model: Any, batch: int, names: Container[str]) -> dict[str, Any]:
    """Build a sound for each sample: a spectrogram, or its samples."""
    config, dtype = model.config, _find_dtype(model)
    if "input_features" in names:
        heard = getattr(config, "audio_config", None) or config
        told = (getattr(heard, name, None) for name in MEL_KEYS)
        bins = next((one for one in told if isinstance(one, int)), MEL_BINS)
        frames = 2 * (getattr(heard, "max_source_positions", None) or SOUND_FRAMES // 2)
        by_time = getattr(heard, "conv_kernel_sizes", None) is not None or not hasattr(heard, "num_mel_bins")
        shape = (frames, bins) if by_time else (bins, frames)
        return {"input_features": torch.empty(batch, *shape, dtype=dtype, device="meta")}
    if "input_values" in names:
        return {"input_values": torch.empty(batch, SOUND_SAMPLES, dtype=dtype, device="meta")}
    return {}
