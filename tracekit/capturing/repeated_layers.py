"""Capture a model's equal layers once, and repeat their calls: what a step of 94 layers needs is in four of them.

Of the model's list of layers only the first periods run, in the order that the rest goes on in. The third of them
stands for all that are left out::

    layers      0 1 2 3 4 5 ... 93
    captured    0 1 2 3
    repeated    0 1 2 2 2 2 ... 3           forward
                3 ... 2 2 2 2 1 0           backward

Layers are taken for equal where their modules are, with the sizes and settings in them. That the second and the third
period then make the same calls, and that nothing behind the layers reads what is inside of one, is looked at.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tracekit.capturing.calls import Call
from tracekit.capturing.layer_memory import find_layers
from tracekit.capturing.micro_batches import SEQUENCE, get_sequence, repeat_last_pass
from tracekit.capturing.ops import MODULE, NO_GRAPH_TASK, Capture, LiveMemory, mark_layer, sum_bytes
from tracekit.capturing.optimizers import Update
from tracekit.models.captured import LayerMemory

if TYPE_CHECKING:
    from tracekit.capturing.program import CapturedProgram

MAX_PERIOD = 8
"""Most layers after which kinds of layers repeat that are looked for; models of today have up to six."""
CAPTURED_PERIODS = 4
"""The first has the embedding beside it, the last the head, and two must be equal."""
REPEATED_PERIOD = 2
"""Place among the captured periods of that which stands for those left out."""
CLASS = "PreTrainedModel"
"""Base class of the models of transformers, which go through their list of layers in order, however long it is."""
FUSED_NAME = re.compile(r"(triton_\w+_fused_\w+)_\d+$")


class LayersUnequalError(Exception):
    """The layers that ran don't tell what the others do."""


Piece = tuple[slice, int, float]
"""Items in order, which repetition they are (0 for what was captured), and by how much their time moves."""
Span = tuple[int, int]
"""First and last of a range of numbers."""


@dataclass(frozen=True)
class Plan:
    """Which of a model's layers run, and how often a part of them is repeated.

    Attributes:
        first: Number of the first layer that is repeated.
        period: How many layers are.
        times: How often, beside the one time that they were captured.
        captured: How many layers run.
    """

    first: int
    period: int
    times: int
    captured: int


def plan_repetition(model: Any) -> Plan | None:
    """Plan which of a model's layers run; None for models of unknown classes, or with too few equal layers."""
    layers = find_layers(model) if any(base.__name__ == CLASS for base in type(model).__mro__) else None
    kinds = [_describe(layer) for layer in layers or ()]
    for period in range(1, MAX_PERIOD + 1):
        differ = [place for place, pair in enumerate(zip(kinds, kinds[period:], strict=False)) if pair[0] != pair[1]]
        before = differ[-1] + 1 if differ else 0
        captured = before + CAPTURED_PERIODS * period + (len(kinds) - before) % period
        if captured < len(kinds):
            return Plan(before + REPEATED_PERIOD * period, period, (len(kinds) - captured) // period, captured)
    return None


def _describe(layer: nn.Module) -> tuple[Any, ...]:
    """Describe a layer by the modules, sizes and settings in it, but for the numbers that tell layers apart."""
    parts = []
    for name, module in layer.named_modules():
        settings = [
            (key, one)
            for key, one in vars(module).items()
            if isinstance(one, bool | str) or (isinstance(one, int) and not ("layer" in key or "idx" in key))
        ]
        sizes = [(key, tuple(one.shape), one.dtype) for key, one in module.named_parameters(recurse=False)]
        parts.append((name, type(module), sorted(settings), sizes))
    return tuple(parts)


@dataclass(frozen=True)
class LayerBegin:
    """Where a layer begins, forward or backward: in the calls, and in the changes of memory."""

    is_backward: bool
    layer: int
    call: int
    change: int


@dataclass
class LayerNotes:
    """What is noted of the layers that run.

    Attributes:
        begins: Of each layer in each pass, in order.
        last_ends: Calls before the last layer's end, of each forward pass.
    """

    plan: Plan
    begins: list[LayerBegin] = field(default_factory=list)
    last_ends: list[int] = field(default_factory=list)

    @property
    def trains(self) -> bool:
        """Whether the layers' passes have a way back."""
        return any(one.is_backward for one in self.begins)

    def find_places(self, ahead: int = 0) -> list[list[Span]]:
        """Find between which layers' begins the part lies that is ``ahead`` periods before the repeated one.

        Returns:
            Places in :attr:`begins`, forward and backward, of each pass.

        Raises:
            LayersUnequalError: The layers didn't run one after the other.
        """
        count, first, last = self.plan.captured, self.plan.first, self.plan.first + self.plan.period
        order = [(False, one) for one in range(count)]
        order += [(True, one) for one in reversed(range(count))] if self.trains else []
        passes = len(self.last_ends)
        if not passes or [(one.is_backward, one.layer) for one in self.begins] != order * passes:
            raise LayersUnequalError
        back = ahead * self.plan.period
        spans = [(first - back, last - back), (2 * count - last + back, 2 * count - first + back)]
        return [
            [(begin + number * len(order), end + number * len(order)) for begin, end in spans[: 1 + self.trains]]
            for number in range(passes)
        ]


@contextmanager
def run_fewer_layers(model: Any, plan: Plan | None, seen: Capture, update: Update) -> Iterator[LayerNotes | None]:
    """Leave out the layers that a plan repeats, and note where the others begin, while the context lasts.

    Raises:
        LayersUnequalError: The optimizer's update runs through all layers.
    """
    layers = find_layers(model)
    if plan is None or layers is None:
        yield None
        return
    if update.run:
        raise LayersUnequalError
    notes, every = LayerNotes(plan), list(layers)
    del layers[plan.captured :]
    hooks = [layer.register_forward_pre_hook(_note_begin(notes, seen, number)) for number, layer in enumerate(layers)]
    hooks += [layer.register_forward_hook(_note_end(notes, seen, number)) for number, layer in enumerate(layers)]
    try:
        yield notes
    finally:
        for hook in hooks:
            hook.remove()
        layers.extend(every[plan.captured :])


def _note(notes: LayerNotes, seen: Capture, number: int, *, is_backward: bool) -> None:
    mark_layer(is_backward=is_backward)
    notes.begins.append(LayerBegin(is_backward, number, len(seen.calls), seen.memory.position))


def _note_begin(notes: LayerNotes, seen: Capture, number: int) -> Any:
    def note(layer: nn.Module, inputs: object) -> None:
        if torch._C._current_graph_task_id() == NO_GRAPH_TASK:
            _note(notes, seen, number, is_backward=False)

    return note


def _note_end(notes: LayerNotes, seen: Capture, number: int) -> Any:
    def note(layer: nn.Module, inputs: object, output: object) -> None:
        if torch._C._current_graph_task_id() != NO_GRAPH_TASK:
            return
        if number == notes.plan.captured - 1:
            notes.last_ends.append(len(seen.calls))
        made = next((one for one in tree_leaves(output) if isinstance(one, Tensor) and one.requires_grad), None)
        if made is not None:
            made.register_hook(lambda gradient: _note(notes, seen, number, is_backward=True))

    return note


def _are_layers_closed(notes: LayerNotes, calls: Sequence[Call]) -> bool:
    """Return whether what runs behind the layers reads nothing from inside of those that are repeated."""
    begins = [(one.layer, one.is_backward, one.call) for one in notes.begins]
    for (layer, is_backward, begin), (_, _, end) in pairwise(begins):
        if layer != notes.plan.first or is_backward:
            continue
        made = {one.number for call in calls[begin:end] for one in call.writes}
        behind = next(one for one in notes.last_ends if one >= end)
        turn = next((place for _, back, place in begins if back and place >= behind), len(calls))
        if any(one.number in made for call in calls[behind:turn] for one in call.reads):
            return False
    return True


def repeat_layers(program: "CapturedProgram", notes: LayerNotes) -> "CapturedProgram":
    """Repeat the calls of a captured program's layers.

    Raises:
        LayersUnequalError: They aren't those of equal layers.
    """
    profile = program.profile
    here, ahead = (
        [[(profile.layers_us[one], profile.layers_us[to]) for one, to in each] for each in notes.find_places(back)]
        for back in (0, 1)
    )
    for ours, theirs in zip(chain.from_iterable(here), chain.from_iterable(ahead), strict=True):
        if _list_work(program, ours) != _list_work(program, theirs):
            raise LayersUnequalError
    ends_us = [-inf, *profile.pass_ends_us]
    for number, each in reversed([*enumerate(here)]):
        program = _repeat_in_pass(program, each, notes.plan.times, (ends_us[number], ends_us[number + 1]))
    return program


def _list_work(program: "CapturedProgram", span: tuple[float, float]) -> list[tuple[Any, ...]]:
    """List what decides the work of the calls of a part of a program."""
    calls = program.calls[slice(*(bisect_left(program.profile.marks_us, us) for us in span))]
    return [
        (FUSED_NAME.sub(r"\1", one.op), len(one.kernels), one.dims, one.types, one.concrete, one.is_backward)
        for one in calls
    ]


def _repeat_in_pass(
    program: "CapturedProgram", spans: list[tuple[float, float]], times: int, within: tuple[float, float]
) -> "CapturedProgram":
    """Repeat the layers of one pass, ``within`` which they lie in some spans: forward, and backward if there is any."""
    profile = program.profile
    starts = [event["ts"] for event in profile.events]
    of_events, of_calls = (_cut(items, spans, times) for items in (starts, profile.marks_us))
    forward = profile.events[of_events[1][0]]
    backward = profile.events[of_events[-2][0]] if len(spans) > 1 else []
    numbering = _Numbering.of_layers(forward, backward, times, within)
    events: list[dict[str, Any]] = []
    launched_from: list[int] = []
    offsets: dict[int, int] = {}
    for (mine, copy, moved_us), (calls, _, _) in zip(of_events, of_calls, strict=True):
        offsets[mine.start] = len(events) - mine.start
        events += [_move(numbering.renumber(event, copy), moved_us, spans, times) for event in profile.events[mine]]
        for place in profile.launched_from[calls]:
            inside = max((start for start in offsets if start <= place), default=0)
            launched_from.append(place + offsets[inside] if place >= 0 else place)
    noted = replace(
        profile,
        events=events,
        marks_us=[us + moved for part, _, moved in of_calls for us in profile.marks_us[part]],
        launched_from=launched_from,
        pass_ends_us=[
            us + times * sum(end - begin for begin, end in spans if end <= us) for us in profile.pass_ends_us
        ],
    )
    return replace(program, calls=tuple(call for part, _, _ in of_calls for call in program.calls[part]), profile=noted)


def _cut(starts: Sequence[float], spans: list[tuple[float, float]], times: int) -> list[Piece]:
    """Cut items into those outside of spans and those inside, which come several times; backward the last first."""
    pieces: list[Piece] = []
    place, moved = 0, 0.0
    for number, span in enumerate(spans):
        begin, end = (bisect_left(starts, us) for us in span)
        pieces.append((slice(place, begin), 0, moved))
        copies = range(times + 1) if number == 0 else reversed(range(times + 1))
        pieces += [(slice(begin, end), copy, moved + slot * (span[1] - span[0])) for slot, copy in enumerate(copies)]
        place, moved = end, moved + times * (span[1] - span[0])
    return [*pieces, (slice(place, len(starts)), 0, moved)]


def _move(event: dict[str, Any], moved_us: float, spans: list[tuple[float, float]], times: int) -> dict[str, Any]:
    """Move an event; one around repeated layers grows."""
    begin, end = event["ts"], event["ts"] + event["dur"]
    grown = times * sum(to - since for since, to in spans if begin < since < end)
    return event | {"ts": begin + moved_us, "dur": event["dur"] + grown}


@dataclass(frozen=True)
class _Numbering:
    """How the numbers of modules and of autograd's nodes go on over repeated layers.

    Attributes:
        modules: Numbers of the repeated layers' modules, by their class.
        sequences: Those of their nodes, of each way.
        times: How often layers are repeated.
        within: When their pass begins and ends. Modules have the same numbers in each pass, nodes have not.
    """

    modules: dict[str, Span]
    sequences: list[Span]
    times: int
    within: tuple[float, float]

    @classmethod
    def of_layers(
        cls,
        forward: list[dict[str, Any]],
        backward: list[dict[str, Any]],
        times: int,
        within: tuple[float, float],
    ) -> "_Numbering":
        modules: dict[str, Span] = {}
        for event in forward:
            if event["name"].startswith(MODULE):
                kind, _, number = event["name"].rpartition("_")
                low, high = modules.get(kind, (int(number), int(number)))
                modules[kind] = min(low, int(number)), max(high, int(number))
        ahead, again = (
            [one for event in way if (one := get_sequence(event)) is not None] for way in (forward, backward)
        )
        most = max(ahead, default=-1)
        again = [one for one in again if one > most + 1] if ahead else []
        return cls(modules, [(min(one), max(one)) for one in (ahead, again) if one], times, within)

    def renumber(self, event: dict[str, Any], copy: int) -> dict[str, Any]:
        """Return an event with the numbers that it has in a repetition."""
        name, sequence = event["name"], get_sequence(event)
        if name.startswith(MODULE):
            kind, _, number = name.rpartition("_")
            is_ours = kind in self.modules and self.within[0] <= event["ts"] < self.within[1]
            spans = [self.modules[kind]] if is_ours else []
            return event | {"name": f"{kind}_{self._shift(int(number), spans, copy)}"}
        if sequence is None:
            return event
        return event | {"args": event["args"] | {SEQUENCE: self._shift(sequence, self.sequences, copy)}}

    def _shift(self, number: int, spans: list[Span], copy: int) -> int:
        return number + sum(
            (high - low + 1) * (self.times if number > high else copy) for low, high in spans if number >= low
        )


def repeat_memory(
    layers: LayerMemory | None, notes: LayerNotes, seen: Capture, gradients: Sequence[Tensor]
) -> LayerMemory | None:
    """Repeat the changes of memory of layers, and return what all of them hold, of what those hold that ran.

    Raises:
        LayersUnequalError: They keep what nothing of theirs frees, or what is behind them reads what is inside.
    """
    spans = _list_changes(notes)
    if (notes.trains and seen.memory.sum_left(spans, gradients)) or not _are_layers_closed(notes, seen.calls):
        raise LayersUnequalError
    return _repeat_changes(layers, notes, seen.memory)


def _list_changes(notes: LayerNotes) -> list[Span]:
    """List the changes of memory in the layers that are repeated."""
    return [
        (notes.begins[begin].change, notes.begins[end].change)
        for begin, end in chain.from_iterable(notes.find_places())
    ]


def _repeat_changes(layers: LayerMemory | None, notes: LayerNotes, memory: LiveMemory) -> LayerMemory | None:
    """Repeat the changes of memory, and return what all layers hold."""
    plan = notes.plan
    memory.repeat(_list_changes(notes), plan.times)
    if layers is None:
        return None
    order = layers.order
    repeated = order[plan.first : plan.first + plan.period] * plan.times
    return replace(layers, order=(*order[: plan.first], *repeated, *order[plan.first :]))


@dataclass(frozen=True)
class LayerRepeats:
    """What the layers that ran tell of the same model with another number of them.

    Attributes:
        notes: Where they begin.
        memory: The changes of memory while they ran.
        gradients: The gradients of those that ran.
        layers: What they hold; None where nothing tells.
        trained: Parameters with gradients, in order.
        inside: Place and number of those among them that are of the repeated layers.
        sizes: Elements of the repeated layers' parameters, their bytes, those of the frozen ones, and of all tensors.
        count: Layers of the model.
        program: The step without what is repeated and without its update.
        build: Builds the update of some parameters.
    """

    notes: LayerNotes
    memory: LiveMemory
    gradients: Sequence[Tensor]
    layers: LayerMemory | None
    trained: Sequence[Tensor]
    inside: tuple[int, int]
    sizes: tuple[int, int, int, int]
    count: int
    program: "CapturedProgram | None" = None
    build: Callable[[Sequence[Tensor]], Update] = lambda trained: Update()

    @classmethod
    def note(
        cls,
        model: Any,
        notes: LayerNotes,
        seen: Capture,
        gradients: Sequence[Tensor],
        layers: LayerMemory | None,
        trained: Sequence[Tensor],
    ) -> "LayerRepeats | None":
        """Note the layers of a step that just ran, before they are repeated; None without a list of them."""
        every, plan = find_layers(model), notes.plan
        if every is None:
            return None
        period = list(every)[plan.first : plan.first + plan.period]
        parameters = [one for layer in period for one in layer.parameters()]
        buffers = [one for layer in period for one in layer.buffers()]
        ours = {id(one) for one in parameters}
        places = [place for place, one in enumerate(trained) if id(one) in ours]
        if places and places[-1] - places[0] >= len(places):
            return None
        sizes = (
            sum(one.numel() for one in parameters),
            sum(one.numel() * one.element_size() for one in parameters),
            sum_bytes(one for one in parameters if not one.requires_grad),
            sum_bytes([*parameters, *buffers]),
        )
        inside = (places[0], len(places)) if places else (len(trained), 0)
        count = plan.captured + plan.times * plan.period
        return cls(notes, seen.memory.copy(), gradients, layers, trained, inside, sizes, count)

    def change_depth(self, found: "CapturedProgram", count: int) -> "CapturedProgram | None":
        """Return a step's calls and facts with another number of layers, without the ops around the calls.

        Args:
            found: The captured step.
            count: The layers.

        Returns:
            None where those that ran don't tell.
        """
        plan, few = self.notes.plan, self.program
        times, rest = divmod(count - plan.captured, plan.period)
        if few is None or times < 1 or rest:
            return None
        notes, more = replace(self.notes, plan=replace(plan, times=times)), times - plan.times
        memory = self.memory.copy()
        layers = _repeat_changes(self.layers, notes, memory)
        update, facts = self.build(self._repeat_trained(more)), few.facts
        elements, parameter_bytes, frozen_bytes, all_bytes = (more * one for one in self.sizes)
        held_bytes = facts.held_bytes - facts.state_bytes + all_bytes + update.state_bytes
        changed = replace(
            found.facts,
            parameters=facts.parameters + elements,
            parameter_bytes=facts.parameter_bytes + parameter_bytes,
            frozen_bytes=facts.frozen_bytes + frozen_bytes * bool(facts.frozen_bytes),
            held_bytes=held_bytes,
            peak_bytes=held_bytes + memory.peak_bytes,
            state_bytes=update.state_bytes,
            peaks=memory.list_peaks(self.gradients),
            activations=memory.list_activations(self.gradients) if facts.trains else (),
            layers=layers,
        )
        bare = replace(few, profile=replace(few.profile, events=[], launched_from=[]), facts=changed)
        repeated = repeat_last_pass(repeat_layers(bare, notes), facts.micro_batches)
        described = repeated.facts.on_stack(found.facts.stack)
        return replace(repeated, calls=(*repeated.calls, *update.calls), facts=described)

    def _repeat_trained(self, more: int) -> list[Tensor]:
        """Return the trained parameters with those of more repeated layers, or of fewer."""
        begin, number = self.inside
        after = begin + number
        ours = [*self.trained[begin:after]] * max(more, 0)
        return [*self.trained[:after], *ours, *self.trained[after + number * max(-more, 0) :]]
