"""Capture a step of a PyTorch program without a GPU and without its weights."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.capturing.load import import_torch, name_failures
from tracekit.capturing.options import (
    AUTOCAST_DTYPES,
    DTYPES,
    FLASH,
    FULL,
    NARROW_FORMATS,
    NO_OPTIMIZER,
    SELECTIVE,
    TF32,
    CaptureOptions,
)
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import models as messages
from tracekit.models.captured import CaptureFacts
from tracekit.parallelism.relayout import add_measured_times
from tracekit.run import prepare_run
from tracekit.workload.parameters import ACCUMULATE_GRAD_OP

if TYPE_CHECKING:
    from tracekit.capturing.calls import Call, OpProfile
    from tracekit.capturing.repeated_layers import LayerRepeats, Plan

LONG_US = 1e6
"""Time of captured kernels, so that none is taken for faster than its arithmetic allows."""
READ_AS = "v100-sxm-16gb"
"""GPU that kernels are read as those of: which one doesn't matter, their times are dropped."""
IMAGE_DIMS = 4


@dataclass(frozen=True)
class CapturedProgram:
    """A step's kernels in order, with their work but without their times.

    Attributes:
        calls: The ops that launch kernels, in order.
        profile: The ops around them.
        facts: Its parameters and memory.
        repeats: What its layers tell of the same model with another number of them; None where they all ran.
    """

    name: str
    calls: "tuple[Call, ...]"
    profile: "OpProfile"
    facts: CaptureFacts
    repeats: "LayerRepeats | None" = field(default=None, compare=False, repr=False)

    def fuse_calls(self, eager: Iterable[int] = ()) -> "CapturedProgram":
        """Return the program with its calls fused, as torch.compile does.

        ``eager`` are the places of calls outside of what is compiled. So are those that add to a gradient.
        """
        from tracekit.capturing.fusion import fuse_calls

        places, calls = zip(
            *fuse_calls(self.calls, {*eager, *self.profile.find_calls(ACCUMULATE_GRAD_OP)}), strict=True
        )
        profile = replace(
            self.profile,
            marks_us=[self.profile.marks_us[place] for place in places],
            launched_from=[self.profile.launched_from[place] for place in places],
        )
        return replace(self, calls=calls, profile=profile)

    def add_calls(self, calls: "Sequence[Call]") -> "CapturedProgram":
        """Return the program with more calls at its end."""
        profile, end_us = self.profile, self.profile.end_us
        marks = [*profile.marks_us, *(end_us + number for number in range(len(calls)))]
        launched_from = [*profile.launched_from, *([-1] * len(calls))]
        noted = replace(profile, marks_us=marks, launched_from=launched_from)
        return replace(self, calls=(*self.calls, *calls), profile=noted)


def capture(
    model: Any,
    *inputs: Any,
    training: bool = False,
    optimizer: str | None = None,
    autocast: str | None = None,
    tf32: bool = False,
    compiled: bool = False,
    channels_last: bool = False,
    attention: str | None = None,
    precision: str | None = None,
    micro_batches: int = 1,
    recompute: str | None = None,
    lora: int | None = None,
    name: str | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> CapturedProgram:
    """Capture a step of a model, which runs once on tensors without data.

    Build model and inputs under ``torch.device("meta")``, so that they take no memory. A training step's loss is what
    the model returns, the ``loss`` of that, or the mean of its first tensor; a function that returns nothing has run
    its own backward pass.

    Args:
        model: A module, or a function.
        inputs: Its arguments.
        training: Whether the step has a backward pass.
        optimizer: The optimizer's step at the end: 'adamw', 'adam' or 'sgd' (with momentum) as they are by default, or
            with 'fused-' before it; 'adamw-8bit' as bitsandbytes has it, 'muon' with AdamW for all but matrices; None
            for none.
        autocast: 'bf16' or 'fp16': mixed precision, as torch.autocast has it.
        tf32: Whether products of fp32 run in TF32.
        compiled: Whether torch.compile fuses the model's kernels, as far as rules tell.
        channels_last: Whether 4-dimensional inputs, parameters and buffers lie as torch.channels_last has them.
        attention: How scaled_dot_product_attention runs: 'eager', 'sdpa' or 'flash'; None as PyTorch chooses.
        precision: Format of the linear layers' products, as :class:`CaptureOptions` has it; None as the model has it.
        micro_batches: Forward and backward passes of a training step, whose gradients add up before the optimizer's
            step.
        recompute: What layers run again in the backward pass, as :class:`CaptureOptions` has it.
        lora: Rank of adapters that are trained in place of the model's own parameters; None for none.
        name: Of the program; by default that of the model's class.
        keywords: Keyword arguments of the model.

    Raises:
        CaptureError: PyTorch isn't installed, the program doesn't run without data, or it has too many micro-batches.
        RequestError: An option is unknown.
    """
    torch = import_torch()
    asked = CaptureOptions(
        train=training,
        optimizer=None if optimizer == NO_OPTIMIZER else optimizer,
        autocast=autocast,
        tf32=tf32,
        compile=compiled,
        attention=attention,
        precision=precision,
        recompute=recompute,
        micro_batches=micro_batches,
        channels_last=channels_last,
        lora=lora,
    )
    if micro_batches > 1 and not training:
        raise RequestError(messages.MICRO_BATCHES_WITHOUT_TRAINING())
    called = name or type(model).__name__
    with ExitStack() as edits:
        if lora:
            from tracekit.capturing.lora import add_adapters

            edits.enter_context(add_adapters(model, lora))
        given = torch, model, inputs, keywords or {}, called, asked
        return _capture_fewer_layers(*given) or _capture_step(*given)


def _capture_fewer_layers(
    torch: Any, model: Any, inputs: Any, keywords: Mapping[str, Any], called: str, asked: CaptureOptions
) -> CapturedProgram | None:
    """Capture a step of a model whose equal layers run once; None where it has none, or they don't tell its step."""
    from tracekit.capturing.repeated_layers import LayersUnequalError, plan_repetition

    plan = plan_repetition(model)
    if plan is None:
        return None
    try:
        return _capture_step(torch, model, inputs, keywords, called, asked, plan)
    except (CaptureError, LayersUnequalError):
        return None


def _capture_step(
    torch: Any,
    model: Any,
    inputs: Any,
    keywords: Mapping[str, Any],
    called: str,
    asked: CaptureOptions,
    plan: "Plan | None" = None,
) -> CapturedProgram:
    """Capture a step of a model with adapters, if any; arguments and errors as for :func:`capture`.

    Raises:
        LayersUnequalError: The layers of ``plan`` aren't such as can be repeated.
    """
    from tracekit.capturing.fusion import find_unmade_buffers
    from tracekit.capturing.known_values import KnownValues
    from tracekit.capturing.layer_memory import LayerMarks
    from tracekit.capturing.micro_batches import CAPTURED_PASSES, repeat_last_pass
    from tracekit.capturing.ops import Capture, profile_ops, sum_bytes
    from tracekit.capturing.optimizers import build_update
    from tracekit.capturing.repeated_layers import LayerRepeats, repeat_layers, repeat_memory, run_fewer_layers

    values = KnownValues()
    with name_failures(lambda error: messages.CAPTURE_FAILED(program=called, error=error)):
        parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
        if isinstance(model, torch.nn.Module):
            model.train(asked.train)
            model.zero_grad()
        inputs, keywords = values.move_to_meta((inputs, dict(keywords)))
        if asked.channels_last:
            model, inputs, keywords = _put_channels_last(torch, (model, inputs, keywords))
        trained = [parameter for parameter in parameters if parameter.requires_grad and parameter.numel()]
        update = build_update(torch, asked.optimizer, model, trained)
        held = [*parameters, *_list_tensors(torch, model, inputs, keywords)]
        with profile_ops() as profile, ExitStack() as modes:
            modes.enter_context(torch.device("meta"))
            modes.enter_context(torch.set_grad_enabled(asked.train))
            seen = modes.enter_context(Capture(tf32=asked.tf32 or asked.precision == TF32, held=held, values=values))
            notes = modes.enter_context(run_fewer_layers(model, plan, seen, update))
            marks = LayerMarks(model, seen.memory)
            modes.enter_context(marks.note())
            fused = modes.enter_context(_choose_kernels(torch, model, asked))
            result = _run_passes(model, inputs, keywords, asked.train, min(asked.micro_batches, CAPTURED_PASSES))
            seen.memory.begin_update()
            first = len(seen.calls)
            if update.run:
                update.run()
            del result
            eager = range(first, len(seen.calls))
            if asked.compile:
                seen.memory.leave_out(find_unmade_buffers(seen.calls, eager))
            gradients = [one.grad for one in parameters if one.grad is not None]
            layers = marks.measure(seen.memory.trace_activations(gradients)) if asked.train else None
            repeats = LayerRepeats.note(model, notes, seen, gradients, layers, trained) if notes else None
            if notes:
                layers = repeat_memory(layers, notes, seen, gradients)
            peaks, activations = seen.memory.list_peaks(gradients), seen.memory.list_activations(gradients)
    if asked.attention and not fused:
        raise CaptureError(messages.ATTENTION_NOT_CALLED())
    if not seen.calls:
        raise CaptureError(messages.CAPTURE_EMPTY(program=called))
    sizes = [parameter.numel() for parameter in parameters]
    held_bytes = sum_bytes(held) + update.state_bytes
    facts = CaptureFacts(
        gpu="",
        parameters=sum(sizes),
        parameter_bytes=sum(size * one.element_size() for size, one in zip(sizes, parameters, strict=True)),
        held_bytes=held_bytes,
        peak_bytes=held_bytes + seen.memory.peak_bytes,
        state_bytes=update.state_bytes,
        peaks=peaks,
        activations=activations if asked.train else (),
        layers=layers,
        trains=asked.train,
        precision=(asked.precision or "") if asked.precision in NARROW_FORMATS else "",
        micro_batches=asked.micro_batches,
        recompute=asked.recompute if asked.recompute in (FULL, SELECTIVE) else "",
        frozen_bytes=sum_bytes(one for one in parameters if not one.requires_grad) if asked.lora else 0,
    )
    found = CapturedProgram(called, tuple(_name_chosen(seen.calls, asked)), profile, facts)
    if asked.compile:
        found = found.fuse_calls(eager)
    if notes and repeats:
        kept = replace(
            repeats, program=found, build=lambda all_trained: build_update(torch, asked.optimizer, model, all_trained)
        )
        found = replace(repeat_layers(found, notes), repeats=kept)
    return repeat_last_pass(found, asked.micro_batches).add_calls(update.calls)


def _name_chosen(calls: "Sequence[Call]", asked: CaptureOptions) -> "Iterator[Call]":
    """Yield the calls, with the kernels of the attention that was asked for."""
    from tracekit.capturing.kernel_names import name_flash_attention

    if asked.attention != FLASH:
        yield from calls
        return
    for one in calls:
        yield replace(one, kernels=name_flash_attention(one.kernels))


@contextmanager
def _choose_kernels(torch: Any, model: Any, asked: CaptureOptions) -> Iterator[list[str]]:
    """Make PyTorch run a model as the options ask, and as it would on CUDA; yield the fused functions called."""
    from tracekit.capturing.cuda_choices import choose_as_cuda

    autocast = asked.precision if asked.precision in AUTOCAST_DTYPES else asked.autocast
    half = getattr(torch, DTYPES[autocast]) if autocast else None
    with ExitStack() as modes:
        fused = modes.enter_context(choose_as_cuda(half, asked.attention))
        if asked.precision in NARROW_FORMATS:
            from tracekit.capturing.narrow_products import multiply_narrowly

            modes.enter_context(multiply_narrowly(model, asked.precision, half, compiled=asked.compile))
        if asked.recompute in (FULL, SELECTIVE):
            from tracekit.capturing.recompute import recompute_layers

            modes.enter_context(recompute_layers(model, asked.recompute))
        yield fused


def tabulate_kernels(calls: "Sequence[Call]") -> pl.DataFrame:
    """Return the kernels as tracekit reads them from a trace, without their times."""
    from tracekit.capturing.timeline import build_trace

    trace = build_trace(calls, repeat(LONG_US), host_us=1.0).load()
    return add_measured_times(prepare_run(trace, source_gpu=READ_AS).program).drop("measured_us")


def _list_tensors(torch: Any, model: Any, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
    """List the tensors that a step begins with, but for parameters."""
    from torch.utils._pytree import tree_leaves

    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    return [*buffers, *(one for one in tree_leaves((inputs, keywords)) if isinstance(one, torch.Tensor))]


def _put_channels_last(torch: Any, given: Any) -> Any:
    """Return modules and tensors with their images' channels side by side in memory; others as they are."""
    from torch.utils._pytree import tree_map

    def convert(one: Any) -> Any:
        is_image = isinstance(one, torch.Tensor) and one.dim() == IMAGE_DIMS
        return one.to(memory_format=torch.channels_last) if is_image or isinstance(one, torch.nn.Module) else one

    return tree_map(convert, given)


def _run_passes(
    model: Any, inputs: Sequence[Any], keywords: Mapping[str, Any], training: bool, micro_batches: int
) -> Any:
    """Run the passes of a step; return the last one's result, which lives until the step ends."""
    from tracekit.capturing.ops import mark_pass_end

    found = None
    for _ in range(micro_batches):
        del found
        found = model(*inputs, **keywords)
        if training and found is not None:
            _find_loss(found).backward()
        mark_pass_end()
    return found


def _find_loss(found: Any) -> Any:
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    loss = getattr(found, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    first = next(one for one in tree_leaves(found) if isinstance(one, Tensor) and one.requires_grad)
    return first if first.dim() == 0 else first.float().mean()
