"""Load the program to capture: a file's function, one of timm's models, a Hugging Face config's, or a DLRM."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from predictors.given_files import read_regular_file
from tracekit.bounds import MAX_MODEL_CONFIG_BYTES, MAX_PROGRAM_BYTES
from tracekit.capturing.loaded_program import (
    ATTENTION_KEYS,
    DEFAULT_ATTENTION,
    FLASH_KEY,
    LoadedProgram,
    pop_attention,
    pop_quantization,
)
from tracekit.capturing.options import CONFIG_SUFFIX, DTYPES, TIMM_PREFIX, is_timm_name, is_training_file
from tracekit.capturing.torchtitan import read_training_file
from tracekit.errors import CaptureError, TracekitError
from tracekit.messages import models as messages
from tracekit.messages.model import Message, Template
from tracekit.models.dlrm import DlrmConfig

STDOUT, STDERR = 1, 2


@contextmanager
def name_failures(make_message: Callable[[str], Message]) -> Iterator[None]:
    """Turn whatever a program raises, ``sys.exit`` too, into an error that says what it was; Ctrl-C stays.

    ``make_message`` gets the error's description.

    Raises:
        CaptureError: The program raised something.
    """
    try:
        yield
    except (TracekitError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise CaptureError(make_message(describe_error(error))) from error


@contextmanager
def move_prints_to_stderr() -> Iterator[None]:
    """Send what a program prints to stderr, what its libraries and child processes print too."""
    stdout = sys.stdout
    stdout.flush()
    with _move_descriptor(), redirect_stdout(sys.stderr):
        try:
            yield
        finally:
            stdout.flush()


@contextmanager
def _move_descriptor() -> Iterator[None]:
    kept = None
    with suppress(OSError):  # either may be closed
        kept = os.dup(STDOUT)
        os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        if kept is not None:
            os.dup2(kept, STDOUT)
            os.close(kept)


def import_package(name: str, missing: Template) -> Any:
    """Import a package.

    ``missing`` is what to say where it isn't installed.

    Raises:
        CaptureError: It isn't installed, or lacks something itself, which is named.
    """
    try:
        return import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise CaptureError(missing()) from error
        raise CaptureError(messages.PACKAGE_UNUSABLE(package=name, error=describe_error(error))) from error


def describe_error(error: BaseException) -> str:
    """Return the kind and the first line of an error; of one that a missing module caused, that module."""
    missing = _find_missing_module(error)
    error = error if missing is None else missing
    first, _, more = str(error).strip().partition("\n")
    second = more.strip().partition("\n")[0].rstrip(".")
    text = f"{first} {second}".strip() if first.endswith(":") else first
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _find_missing_module(error: BaseException | None) -> ModuleNotFoundError | None:
    if error is None or isinstance(error, ModuleNotFoundError):
        return error
    return _find_missing_module(error.__cause__)


BATCH_ARGUMENT = "batch"
"""Of a function that builds a model: how many samples its inputs hold."""
POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length")
"""Keys of a config that tell how many tokens a sequence may have."""
MAX_TOKENS = 1 << 20
MAX_SUGGESTIONS = 3
OWN_CODE = "auto_map"
"""Key of a config that names code beside it, which never runs."""
NO_FUSED_ATTENTION = "does not support an attention implementation"
"""How transformers says that a model has no fused attention."""


def load_program(
    program: str,
    *,
    batch: int | None,
    tokens: int,
    dtype: str,
    training: bool,
    attention: str | None = None,
    dlrm: DlrmConfig | None = None,
) -> LoadedProgram:
    """Load what a name stands for: ``FILE.py:FUNCTION``, ``timm:MODEL``, a ``config.json``, or a torchtitan TOML.

    Args:
        program: The name.
        batch: Sequences of a config, or samples of a function that takes its batch; None for its own, of a config 1.
        tokens: Of a config: tokens of each.
        dtype: Of a config or of timm's model: 'bf16', 'fp16' or 'fp32'.
        training: Whether its step has a backward pass.
        attention: Of a config: how attention is computed; None as it says.
        dlrm: What the config says, where it is one of a DLRM.

    Raises:
        CaptureError: It can't be loaded.
    """
    if dlrm:
        import_torch()
        from tracekit.capturing.dlrm import build_dlrm

        return build_dlrm(dlrm, batch or dlrm.batch_size, dtype, training=training)
    if is_training_file(program):
        file = read_training_file(program)
        built = build_config_model(
            file.model, program, batch or 1, tokens, dtype, training=training, attention=attention
        )
        return replace(built, left_out=(*built.left_out, *file.left_out))
    if program.endswith(CONFIG_SUFFIX):
        return load_config_model(Path(program), batch or 1, tokens, dtype, training=training, attention=attention)
    if is_timm_name(program):
        return load_timm_model(program.removeprefix(TIMM_PREFIX), batch or 1, dtype)
    return load_function(program, batch)


def _read_text(path: Path, limit_bytes: int) -> str:
    data = read_regular_file(path, limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"it is larger than {limit_bytes:,} bytes")
    return data.decode("utf-8")


def takes_batch(program: str) -> bool:
    """Return whether a function has an argument for its batch.

    Raises:
        CaptureError: There is no such file or function.
    """
    return BATCH_ARGUMENT in signature(_find_function(program)).parameters


def load_function(program: str, batch: int | None = None) -> LoadedProgram:
    """Run the function that ``FILE.py:FUNCTION`` names, which returns a model and its inputs.

    ``batch`` is its argument ``batch``, where it has one; None for its own.

    Raises:
        CaptureError: There is no such file or function, it fails, or returns something else.
    """
    function, name = _find_function(program), program.rpartition(":")[2]
    torch = import_torch()
    given = {BATCH_ARGUMENT: batch} if batch is not None and takes_batch(program) else {}
    with name_failures(lambda error: messages.PROGRAM_UNREADABLE(path=program, error=error)), torch.device("meta"):
        found = function(**given)
    if not isinstance(found, tuple) or len(found) < 2 or not callable(found[0]):
        raise CaptureError(messages.INPUTS_MISSING(function=name, found=type(found).__name__))
    model, *inputs = found
    in_one = len(inputs) == 1 and isinstance(inputs[0], tuple)
    return LoadedProgram(Path(program).name, model, inputs[0] if in_one else tuple(inputs))


def read_max_tokens(config: Path) -> int:
    """Read how many positions a Hugging Face config has; where it doesn't tell, as many as any.

    Raises:
        CaptureError: It can't be read.
    """
    try:
        given = json.loads(_read_text(config, MAX_MODEL_CONFIG_BYTES))
        known = [given[name] for name in POSITIONS if isinstance(given.get(name), int) and given[name] > 0]
    except (OSError, ValueError, AttributeError) as error:
        raise CaptureError(messages.PROGRAM_UNREADABLE(path=str(config), error=describe_error(error))) from error
    return known[0] if known else MAX_TOKENS


def load_config_model(
    config: Path, batch: int, tokens: int, dtype: str, *, training: bool, attention: str | None = None
) -> LoadedProgram:
    """Build a model from a Hugging Face config; arguments and errors as for :func:`build_config_model`."""
    with name_failures(lambda error: messages.CONFIG_MODEL_UNKNOWN(path=str(config), error=error)):
        given = json.loads(_read_text(config, MAX_MODEL_CONFIG_BYTES))
    return build_config_model(given, str(config), batch, tokens, dtype, training=training, attention=attention)


def build_config_model(
    given: dict[str, Any],
    path: str,
    batch: int,
    tokens: int,
    dtype: str,
    *,
    training: bool,
    attention: str | None = None,
) -> LoadedProgram:
    """Build a model from a Hugging Face config, with what it takes as its inputs; nothing is downloaded.

    Args:
        given: The config.
        path: Where it is from.
        batch: Sequences.
        tokens: Of each.
        dtype: Type of its parameters: 'bf16', 'fp16' or 'fp32'.
        training: Whether the labels are given too, so that it returns its loss.
        attention: How attention is computed: 'eager', 'sdpa' or 'flash'; None as the config says.

    Raises:
        CaptureError: transformers isn't installed or knows no such model, or it is quantized in an unknown way.
    """
    torch = import_torch()
    transformers = import_package("transformers", messages.CAPTURE_NEEDS_TRANSFORMERS)
    from tracekit.capturing.hugging_face import build_inputs, choose_class

    with name_failures(lambda error: messages.CONFIG_MODEL_UNKNOWN(path=path, error=error)):
        transformers.logging.set_verbosity_error()
        given.pop(OWN_CODE, None)
        wanted, quantization = attention or pop_attention(given), pop_quantization(given)
        for key in (*ATTENTION_KEYS, FLASH_KEY):
            given.pop(key, None)
        if quantization and training:
            raise CaptureError(messages.CONFIG_QUANTIZED_TRAINING(method=quantization.method))
        known = transformers.AutoConfig.for_model(**given)
        head = choose_class(transformers, known, next(iter(given.get("architectures") or ()), ""))
        with torch.device("meta"):
            model, kind = _build_model(head, known, wanted, is_asked=attention is not None)
        model.to("meta", getattr(torch, DTYPES[dtype]))
        inputs = build_inputs(model, batch, tokens, training=training)
    if quantization:
        from tracekit.capturing.fp8_layers import quantize_linear_layers

        quantize_linear_layers(model, quantization)
    method = quantization.method if quantization else ""
    name = given.get("model_type", Path(path).stem)
    return LoadedProgram(name, model, (), inputs.keywords, kind, method, inputs.tokens, inputs.left_out)


def load_timm_model(name: str, batch: int, dtype: str) -> LoadedProgram:
    """Build one of timm's models, with images of the size that it was made for; nothing is downloaded.

    Raises:
        CaptureError: timm isn't installed, or has no such model.
    """
    torch = import_torch()
    timm = import_package("timm", messages.CAPTURE_NEEDS_TIMM)
    if not timm.is_model(name):
        close = get_close_matches(name, timm.list_models(), MAX_SUGGESTIONS)
        raise CaptureError(messages.TIMM_MODEL_UNKNOWN(model=name, close=close or timm.list_models()[:MAX_SUGGESTIONS]))
    parameter_type = getattr(torch, DTYPES[dtype])
    with name_failures(lambda error: messages.PROGRAM_UNREADABLE(path=name, error=error)), torch.device("meta"):
        model = timm.create_model(name).to(parameter_type)
        images = torch.empty(batch, *model.pretrained_cfg["input_size"], dtype=parameter_type)
    return LoadedProgram(name, model, (images,))


def _build_model(head: Any, config: Any, wanted: str | None, *, is_asked: bool) -> tuple[Any, str]:
    """Build the model, and return how its attention is computed: by plain products where it has no fused one.

    FlashAttention runs through PyTorch's own function, which is told later to choose it.
    """
    kind, build = wanted or DEFAULT_ATTENTION, getattr(head, "from_config", None) or head._from_config
    try:
        return build(config, attn_implementation="eager" if kind == "eager" else "sdpa"), kind
    except ValueError as error:
        if NO_FUSED_ATTENTION not in str(error):
            raise
        if is_asked:
            raise CaptureError(messages.ATTENTION_NOT_FUSED()) from error
        return build(config, attn_implementation="eager"), "eager"


def _find_function(program: str) -> Callable[..., Any]:
    path, _, name = program.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise CaptureError(messages.PROGRAM_MALFORMED(program=program))
    return _import_function(Path(path), name)


@cache
def _import_function(path: Path, name: str) -> Callable[..., Any]:
    folder = str(path.parent.resolve())
    with name_failures(lambda error: messages.PROGRAM_UNREADABLE(path=str(path), error=error)):
        text = _read_text(path, MAX_PROGRAM_BYTES)
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        sys.path.insert(0, folder)
        try:
            exec(compile(text, str(path), "exec"), module.__dict__)
        finally:
            sys.path.remove(folder)
    function = module.__dict__.get(name)
    if not callable(function):
        functions = [key for key, value in module.__dict__.items() if callable(value) and not key.startswith("_")]
        raise CaptureError(messages.FUNCTION_MISSING(path=str(path), function=name, functions=functions))
    return function


def import_torch() -> Any:
    """Import PyTorch.

    Raises:
        CaptureError: It isn't installed.
    """
    return import_package("torch", messages.CAPTURE_NEEDS_TORCH)
