"""Recompute a model's layers in the backward pass, as torch.utils.checkpoint does, instead of keeping what they make.

A layer that is recomputed runs its forward pass again before its backward pass::

    full         forward 1 | forward 2 | forward 2 | backward 2 | forward 1 | backward 1
    selective    the same, but the second time without attention and every second product, whose results are kept

That is what torchtitan calls full and op-level selective activation checkpointing (torchtitan,
distributed/activation_checkpoint.py). As there, a layer runs to its end again (``early_stop=False``).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
    set_checkpoint_early_stop,
)

from tracekit.capturing.layer_memory import list_layers
from tracekit.capturing.options import SELECTIVE
from tracekit.errors import CaptureError
from tracekit.messages import models as messages

PRODUCTS = ("mm", "addmm", "_scaled_mm", "quantised_linear")
"""Ops of linear layers, of which every second is run again."""
ATTENTION = ("_scaled_dot_product", "flash_attention")
"""In names of ops whose results are always kept."""

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


@contextmanager
def recompute_layers(model: Any, how: str) -> Iterator[None]:
    """Make the layers of a model run again in its backward pass, inside.

    Raises:
        CaptureError: It has none that repeat.
    """
    layers = list_layers(model)
    if not layers:
        raise CaptureError(messages.RECOMPUTE_WITHOUT_LAYERS())
    with ExitStack() as patches:
        for layer in layers:
            patches.enter_context(patch.object(layer, "forward", partial(_run_layer, layer, layer.forward, how)))
        yield


def _run_layer(layer: nn.Module, forward: Callable[..., Any], how: str, *args: Any, **keywords: Any) -> Any:
    """Run a layer's forward pass; it runs again in its backward pass, then as a module, so that it is noted as one."""
    runs = 0

    def run(*args: Any, **keywords: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
            return forward(*args, **keywords)
        with patch.object(layer, "forward", forward):
            return layer(*args, **keywords)

    contexts = _make_contexts if how == SELECTIVE else noop_context_fn
    with set_checkpoint_early_stop(False):
        return checkpoint(run, *args, use_reentrant=False, context_fn=contexts, preserve_rng_state=False, **keywords)


def _make_contexts() -> Contexts:
    """Make the contexts of a layer's two runs."""
    products = {False: 0, True: 0}

    def choose(context: Any, op: Any, *args: Any, **keywords: Any) -> CheckpointPolicy:
        name = op._schema.name.rpartition("::")[2] if isinstance(op, torch._ops.OpOverload) else ""
        if name in PRODUCTS:
            products[context.is_recompute] += 1
            is_kept = products[context.is_recompute] % 2 == 1
        else:
            is_kept = any(part in name for part in ATTENTION)
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    made: Contexts = create_selective_checkpoint_contexts(choose)
    return made
