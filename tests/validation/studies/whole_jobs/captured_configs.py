"""Which of Hugging Face's language models can be captured: each kind with its default config, a training step.

No times are compared here. The kinds are the first of transformers' list, in its order.
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
TOKENS = 256
MAX_SECONDS = 20
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
            given = transformers.AutoConfig.for_model(kind).to_dict() | {"model_type": kind, "architectures": []}
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

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAX_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
