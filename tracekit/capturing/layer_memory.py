"""What each layer of a program keeps for its backward pass, for the memory of pipeline stages."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tracekit.arrays import Ints
from tracekit.capturing.ops import NO_GRAPH_TASK, LiveMemory
from tracekit.models.captured import LayerMemory

LayerList = nn.ModuleList | nn.Sequential
MIN_LAYERS = 2
HF_LAYER = "GradientCheckpointingLayer"
"""Base class of the layers of transformers that can be recomputed."""
MAX_KINDS = 24
"""Most kinds of layers that a trace keeps: it has 4 KB for all facts about a captured program."""


class LayerMarks:
    """Where the layers' passes begin in the changes of memory.

    ::

        changes  | embedding | layer 0 | layer 1 | head, loss, its backward | layer 1 back | layer 0 back
                 0           ^ ahead[0]^ ahead[1]^ ahead[2]                 ^ back[1]      ^ back[0]

    Args:
        model: The model; its layers are those of the list that :func:`find_layers` finds.
        memory: Notes the changes.
    """

    def __init__(self, model: Any, memory: LiveMemory) -> None:
        self._model, self._memory = model, memory
        self._layers = find_layers(model)
        self._ahead: list[int] = []
        self._back: dict[int, int] = {}
        self._before: list[nn.Module] = []
        self._next_pass: int | None = None

    @contextmanager
    def note(self) -> Iterator[None]:
        """Note where the first passes of the layers begin."""
        if self._layers is None:
            yield
            return
        hooks = [layer.register_forward_pre_hook(self._begin) for layer in self._layers]
        hooks += [layer.register_forward_hook(self._end) for layer in self._layers]
        hooks += [one.register_forward_pre_hook(self._begin_other) for one in self._model.modules()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _begin(self, layer: nn.Module, inputs: object) -> None:
        if self._layers is not None and len(self._ahead) < len(self._layers):
            self._ahead.append(self._memory.position)
        elif self._next_pass is None and torch._C._current_graph_task_id() == NO_GRAPH_TASK:
            self._next_pass = self._memory.position

    def _begin_other(self, module: nn.Module, inputs: object) -> None:
        if not self._ahead:
            self._before.append(module)

    def _end(self, layer: nn.Module, inputs: object, output: object) -> None:
        number = len(self._ahead) - 1
        if self._layers is None or number in self._back or number >= len(self._layers):
            return
        if number == len(self._layers) - 1:
            self._ahead.append(self._memory.position)
        made = next((one for one in tree_leaves(output) if isinstance(one, Tensor) and one.requires_grad), None)
        if made is not None:
            self._back[number] = -1
            made.register_hook(lambda gradient: self._turn(number))

    def _turn(self, number: int) -> None:
        if self._back[number] < 0:
            self._back[number] = self._memory.position

    def measure(self, activations: Ints) -> LayerMemory | None:
        """Measure what each layer keeps; None where there are no layers, or they don't run once, one after the other.

        Args:
            activations: Bytes of activations after each change of memory.
        """
        layers = self._layers
        if layers is None or len(self._ahead) != len(layers) + 1 or len(self._back) != len(layers):
            return None
        ahead, back = np.array(self._ahead), np.array([self._back[number] for number in range(len(layers))])
        end = len(activations) - 1 if self._next_pass is None else self._next_pass
        if (np.diff(ahead) < 0).any() or (np.diff(back) > 0).any() or back[-1] < ahead[-1] or end < back[0]:
            return None
        kept = np.diff(activations[ahead])
        before = activations[ahead[:-1]]
        ends = np.append(back[::-1][1:], end)[::-1]
        turned = np.array([activations[begin : end + 1].max() for begin, end in zip(back, ends, strict=True)])
        forward = np.array([activations[begin : end + 1].max() for begin, end in pairwise(ahead)])
        extra = np.maximum(turned, forward) - before - kept
        head = activations[ahead[-1] : back[-1] + 1].max() - activations[ahead[-1]]
        first, last = self._sum_ends(layers)
        parameters = [_sum_bytes(layer.parameters()) for layer in layers]
        each = [*zip(parameters, np.maximum(kept, 0).tolist(), np.maximum(extra, 0).tolist(), strict=True)]
        kinds = [*dict.fromkeys(each)]
        if len(kinds) > MAX_KINDS:
            return None
        return LayerMemory(
            kinds=tuple(kinds),
            order=tuple(kinds.index(one) for one in each),
            first_parameter_bytes=first,
            first_kept_bytes=int(activations[ahead[0]]),
            last_parameter_bytes=last,
            last_extra_bytes=int(head),
        )

    def _sum_ends(self, layers: LayerList) -> tuple[int, int]:
        """Sum the parameters of modules that run before the layers, and of others; what both share is in both."""
        before, inside = {id(one) for one in self._before}, {id(one) for one in layers.modules()}
        others = [one for one in self._model.modules() if id(one) not in inside]
        ends = ([one for one in others if (id(one) in before) == is_first] for is_first in (True, False))
        first, last = (_sum_bytes(p for one in end for p in one.parameters(recurse=False)) for end in ends)
        return first, last


def list_layers(model: Any) -> list[nn.Module]:
    """List the layers of a model: those that transformers marks, or else the outermost of one class in a list.

    A function has none.
    """
    if not isinstance(model, nn.Module):
        return []
    marked = [one for one in model.modules() if any(base.__name__ == HF_LAYER for base in type(one).__mro__)]
    return marked or [*_list_repeated(model)]


def find_layers(model: Any) -> LayerList | None:
    """Find the list of a model's layers, of several that with the most parameters; None where no list holds any."""
    layers = {id(one) for one in list_layers(model)}
    lists = [
        one
        for one in (model.modules() if layers else ())
        if isinstance(one, LayerList) and len(one) >= MIN_LAYERS and all(id(each) in layers for each in one)
    ]
    return max(lists, key=lambda one: sum(each.numel() for each in one.parameters()), default=None)


def _list_repeated(module: nn.Module) -> Iterator[nn.Module]:
    """List the modules of one class in lists; such a module has modules of its own, and parameters."""
    children = list(module.children())
    is_list = isinstance(module, LayerList) and len({type(one) for one in children}) == 1
    if is_list and len(children) >= MIN_LAYERS and all(_has_parts(one) for one in children):
        yield from children
        return
    for child in children:
        yield from _list_repeated(child)


def _has_parts(module: nn.Module) -> bool:
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def _sum_bytes(parameters: Iterable[Tensor]) -> int:
    return sum({id(one): one.numel() * one.element_size() for one in parameters}.values())
