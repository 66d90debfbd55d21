"""Which of Hugging Face's language models can be captured: each kind with its default config, a training step.

Kinds whose default config isn't a model get what their checkpoints have. No times are compared here. The kinds are the
first of transformers' list, in its order.
"""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.validation.study import MissingInputError, format_table
from tracekit.capturing.load import load_config_model
from tracekit.capturing.program import capture

INPUTS = ()
KINDS = 80
TOKENS = 512
MAX_SECONDS = 60
"""Of the CPU."""
SIZES: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "dbrx": {"attn_config": {"rope_theta": 5e5, "kv_n_heads": 8, "clip_qkv": 8}},
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "gemma4_assistant": {
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_kv_shared_layers": 0}
    },
}
"""Keys that kinds need whose default config isn't a model."""
MAX_REASON_CHARS = 110


def run() -> str:
    """Return the number of kinds that can be captured, and why others can't."""
    if find_spec("transformers") is None:
        raise MissingInputError("install transformers")
    transformers = import_module("transformers")
    transformers.logging.set_verbosity_error()
    names = import_module("transformers.models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    outcomes = {kind: try_kind(transformers, kind) for kind in list(names)[:KINDS]}
    failed = [(kind, reason) for kind, reason in outcomes.items() if reason]
    captured = [kind for kind, reason in outcomes.items() if not reason]
    return "\n".join(
        (
            "# Hugging Face's language models, captured\n",
            f"transformers {transformers.__version__}: {len(captured)} of {len(outcomes)} kinds.\n",
            f"Captured: {', '.join(captured)}.\n",
            format_table(("kind", "why not"), failed),
        )
    )


def try_kind(transformers: Any, kind: str) -> str:
    """Capture a kind of model; return why it can't be, or nothing."""
    try:
        with limit_time(), TemporaryDirectory() as folder:
            config = Path(folder) / "config.json"
            sizes = SIZES.get(kind, {})
            given = transformers.AutoConfig.for_model(kind, **sizes).to_dict() | sizes
            given |= {"model_type": kind, "architectures": []}
            config.write_text(json.dumps(given, default=str), encoding="utf-8")
            loaded = load_config_model(config, 1, TOKENS, "bf16", training=True)
            capture(loaded.model, training=True, keywords=loaded.keywords)
    except Exception as error:
        return str(error.__cause__ or error).strip().partition("\n")[0][:MAX_REASON_CHARS] or type(error).__name__
    return ""


@contextmanager
def limit_time() -> Iterator[None]:
    """Give up after some seconds: models that go through tokens one by one."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"over {MAX_SECONDS} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
