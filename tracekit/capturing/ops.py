"""Note the ops of a PyTorch program that would launch kernels on a GPU, from its run on tensors without data."""

import json
import os
import re
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from tracekit.arrays import Ints
from tracekit.capturing.calls import Call, Operand, OpProfile
from tracekit.capturing.kernel_names import TF32, lies_by_pixel, list_following_ops, list_kernel_names
from tracekit.capturing.known_values import KnownValues, ReadingMode
from tracekit.capturing.state_space_layers import KERNELS as SCANS
from tracekit.capturing.state_space_layers import MAMBA_CAPTURED
from tracekit.capturing.table_lookups import FBGEMM, FBGEMM_CAPTURED

BLOCK_BYTES = 512
"""That PyTorch's allocator rounds sizes up to (CUDACachingAllocator.cpp, ``kMinBlockSize``)."""


class LiveMemory:
    """Peak of the memory that tensors made in between hold at once.

    Args:
        held: Tensors that were there before; they don't count.
    """

    def __init__(self, held: Iterable[Tensor] = ()) -> None:
        self.peak_bytes = 0
        self._live_bytes = 0
        self._known: dict[int, int] = {}
        self._numbered = 0
        self._changes: list[tuple[int, int]] = []
        self._shapes: dict[int, set[tuple[int, ...]]] = {}
        self._update_begin: int | None = None
        for tensor in held:
            self.number(tensor)

    def copy(self) -> "LiveMemory":
        """Return the changes so far, whatever becomes of the tensors."""
        copied = copy(self)
        copied._changes, copied._known = [*self._changes], dict(self._known)
        return copied

    def note(self, result: Any) -> None:
        """Note the tensors of an op's result; views share what they are views of."""
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                self._note_storage(one.untyped_storage())
                self._shapes.setdefault(self._known[one.untyped_storage()._cdata], set()).add(tuple(one.shape))
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

    def _note_storage(self, storage: Any) -> None:
        if storage._cdata in self._known:
            return
        size = round_to_block(storage.nbytes())
        self._add(storage, size)
        self._live_bytes += size
        self._changes.append((self._known[storage._cdata], size))

    def _add(self, storage: Any, size: int = 0) -> None:
        self._known[storage._cdata] = self._numbered
        self._numbered += 1
        weakref.finalize(storage, self._drop, storage._cdata, size)

    def _drop(self, key: int, size: int) -> None:
        number = self._known.pop(key, None)
        self._live_bytes -= size
        if number is not None and size:
            self._changes.append((number, -size))

    def number(self, tensor: Tensor) -> int:
        """Return the number of a tensor's memory, which no other has had before."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._add(storage)
        return self._known[storage._cdata]

    @property
    def position(self) -> int:
        """Number of the changes so far."""
        return len(self._changes)

    def sum_left(self, spans: Iterable[tuple[int, int]], gradients: Iterable[Tensor]) -> int:
        """Sum the bytes, but of gradients, that the changes in some spans leave behind."""
        live = self.trace_activations(gradients)
        return sum(int(live[end] - live[begin]) for begin, end in spans)

    def repeat(self, spans: Iterable[tuple[int, int]], times: int) -> None:
        """Repeat the changes in some spans; those of repeated layers are of the same memory, so that sums are right."""
        for begin, end in sorted(spans, reverse=True):
            self._changes[end:end] = self._changes[begin:end] * times
            if self._update_begin is not None and self._update_begin >= end:
                self._update_begin += times * (end - begin)
        self.peak_bytes = int(np.cumsum([size for _, size in self._changes] or [0]).max(initial=0))

    def leave_out(self, numbers: Collection[int]) -> None:
        """Leave out memory that a compiler never allocates."""
        gone = set(numbers)
        self._changes = [(number, 0 if number in gone else size) for number, size in self._changes]
        self.peak_bytes = int(np.cumsum([size for _, size in self._changes] or [0]).max(initial=0))

    def trace_activations(self, gradients: Iterable[Tensor]) -> Ints:
        """Return the bytes of all but gradients before the first change and after each.

        Args:
            gradients: The parameters' gradients, while they are there.
        """
        live: Ints = self._sum_changes(gradients)[:, 1]
        return live

    def list_activations(self, gradients: Iterable[Tensor]) -> tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]:
        """List the activations at the moment of most of them: bytes by the shapes that ops see of a tensor.

        Args:
            gradients: The parameters' gradients, while they are there.
        """
        ours = {self.number(one) for one in gradients}
        most = int(self.trace_activations(gradients)[: self._update_position + 1].argmax())
        live: Counter[int] = Counter()
        for number, size in self._changes[:most]:
            live[number] += size
        found: Counter[tuple[tuple[int, ...], ...]] = Counter()
        for number, size in live.items():
            if size and number not in ours:
                found[tuple(sorted(self._shapes.get(number, ())))] += size
        return tuple((size, shapes) for shapes, size in found.most_common(MAX_ACTIVATION_GROUPS) if size)

    def _sum_changes(self, gradients: Iterable[Tensor]) -> Ints:
        """Sum the changes of gradients, and of activations."""
        changes = np.array(self._changes, np.int64).reshape(-1, 2)
        is_gradient = np.isin(changes[:, 0], [self.number(one) for one in gradients])
        sizes = np.column_stack([np.where(is_gradient, changes[:, 1], 0), np.where(is_gradient, 0, changes[:, 1])])
        live: Ints = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(sizes, axis=0)])
        return live

    @property
    def _update_position(self) -> int:
        return len(self._changes) if self._update_begin is None else self._update_begin

    def begin_update(self) -> None:
        """Note that the passes are over, and the optimizer's update begins."""
        self._update_begin = len(self._changes)

    def list_peaks(self, gradients: Iterable[Tensor]) -> tuple[tuple[int, int, int], ...]:
        """List the moments that may need most memory, however gradients and activations are scaled; the update last.

        A scaled sum is largest at a corner of the curve of gradients against activations; that of the most activations
        beside a gradient is listed, too::

            activations | o forward's end
                        |     o
                        |        o       o: listed
                        +----------- gradients

        Args:
            gradients: The parameters' gradients, while they are there.

        Returns:
            Bytes of gradients, of activations, and of what the update makes.
        """
        live, begin = self._sum_changes(gradients), self._update_position
        passes, update = live[: begin + 1], live[begin:]
        most = passes[np.lexsort((passes[:, 1], passes[:, 0]))[::-1]]
        ahead = np.concatenate([[-1], np.maximum.accumulate(most[:-1, 1])])
        corners = most[most[:, 1] > ahead]
        chosen = corners[np.unique((corners @ np.vstack([np.ones(SCALES.size), SCALES])).argmax(axis=0))]
        returning = passes[passes[:, 0] > 0]
        if len(returning):
            chosen = np.vstack([chosen, returning[returning[:, 1].argmax()]])
        extra = int((update[:, 1] - update[0, 1]).max())
        found = [(int(ours), int(theirs), 0) for ours, theirs in chosen]
        return (*found, (int(update[0, 0]), int(update[0, 1]), extra))


MAX_ACTIVATION_GROUPS = 16
"""Most groups of activations with the same shapes that a trace keeps, the largest first."""
SCALES = 2.0 ** np.arange(-12, 13, 0.25)
"""Scales of activations relative to gradients, among which the moments of the most memory are looked for."""


def round_to_block(size: int) -> int:
    """Return what the allocator takes for so many bytes."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def sum_bytes(tensors: Iterable[Tensor]) -> int:
    """Return what some tensors hold, each storage once."""
    sizes = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(map(round_to_block, sizes.values()))


MARK = "tracekit::call "
"""Prefix of a mark; the number of its call follows."""
PASS_END = "tracekit::pass"
"""Mark of the end of a forward and backward pass."""
LAYER = "tracekit::layer "
"""Prefix of the mark of a layer's begin; what starts it follows, MODULE or NODE."""
NODE = "autograd::engine::evaluate_function"
"""Prefix of the profiler's event of a node of autograd."""
MODULE = "nn.Module: "
"""Prefix of a module's name, as the profiler has it."""
KEPT_ARGS = ("Sequence number", "Fwd thread id", "Input Dims", "Input type", "Input Strides", "Concrete Inputs")
"""What is kept of the profiler's notes on an event."""
OWN_EVENTS = "PythonDispatchMode"
"""The profiler's event of the mode that notes the calls."""
QUIET_LOG = {"KINETO_LOG_LEVEL": "6"}
"""Keeps the profiler from writing to stderr that it starts and stops."""


def mark_call(number: int) -> None:
    """Leave the mark of a call; does nothing without a profiler."""
    with torch._C._profiler._RecordFunctionFast(f"{MARK}{number}"):
        pass


def mark_pass_end() -> None:
    """Leave the mark of the end of a forward and backward pass; does nothing without a profiler."""
    with torch._C._profiler._RecordFunctionFast(PASS_END):
        pass


def mark_layer(*, is_backward: bool) -> None:
    """Leave the mark of a layer's begin; does nothing without a profiler."""
    with torch._C._profiler._RecordFunctionFast(f"{LAYER}{NODE if is_backward else MODULE}"):
        pass


@contextmanager
def pause_profiling() -> Iterator[None]:
    """Keep the profiler from noting the ops that compute an op without data."""
    torch._C._autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch._C._autograd._enable_record_function(True)


@contextmanager
def profile_ops() -> Iterator[OpProfile]:
    """Profile the ops that run inside; the profile is complete afterwards."""
    found = OpProfile()
    os.environ.update({name: value for name, value in QUIET_LOG.items() if name not in os.environ})
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    with profiler, _note_modules():
        yield found
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = msgspec.json.decode(path.read_bytes())["traceEvents"]
    _sort_out(found, [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"])


def _sort_out(found: OpProfile, events: list[dict[str, Any]]) -> None:
    """Separate the events of a program from the marks."""
    open_ops: list[tuple[float, int]] = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        start, name = event["ts"], event["name"]
        while open_ops and open_ops[-1][0] <= start:
            open_ops.pop()
        if name.startswith(MARK):
            found.marks_us.append(start)
            found.launched_from.append(open_ops[-1][1] if open_ops else -1)
        elif name == PASS_END:
            found.pass_ends_us.append(start)
        elif name.startswith(LAYER):
            opener = name.removeprefix(LAYER)
            found.layers_us.append(next(one["ts"] for one in reversed(found.events) if one["name"].startswith(opener)))
        elif name != OWN_EVENTS:
            is_module = name.startswith(MODULE)
            args = {key: value for key, value in event.get("args", {}).items() if key in KEPT_ARGS}
            found.events.append(event | {"args": args} | ({"cat": "python_function"} if is_module else {}))
            if not is_module:
                open_ops.append((start + event["dur"], len(found.events) - 1))


@contextmanager
def _note_modules() -> Iterator[None]:
    """Note when modules run, under the names that the profiler gives them: ``nn.Module: Linear_0``."""
    names: dict[int, str] = {}
    numbers: Counter[str] = Counter()
    running: list[Any] = []

    def begin(module: nn.Module, inputs: object) -> None:
        kind = type(module).__name__
        if id(module) not in names:
            names[id(module)] = f"{MODULE}{kind}_{numbers[kind]}"
            numbers[kind] += 1
        running.append(torch._C._profiler._RecordFunctionFast(names[id(module)]))
        running[-1].__enter__()

    def end(module: nn.Module, inputs: object, output: object) -> None:
        running.pop().__exit__(None, None, None)

    hooks = register_module_forward_pre_hook(begin), register_module_forward_hook(end, always_call=True)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


TYPES = {
    torch.float32: "float",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int",
    torch.bool: "bool",
    torch.uint8: "unsigned char",
    torch.uint64: "unsigned long",
    torch.int32: "int",
    torch.int16: "short int",
    torch.int8: "signed char",
    torch.float64: "double",
    torch.complex64: "c10::complex<float>",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
}

NO_GRAPH_TASK = -1
"""Number of autograd's pass while there is none."""
NO_KERNEL = re.compile(
    r"empty|view|detach|_local_scalar|profiler|lift_fresh|"
    r"^(t|alias|diagonal|expand|permute|transpose|as_strided|select|slice|split|split_with_sizes|squeeze|unbind|unfold|"
    r"unsqueeze)$"
)


class Capture(ReadingMode):
    """Mode that notes each op that launches kernels, and the memory of what they make.

    Args:
        tf32: Whether products of fp32 run in TF32.
        held: Tensors that were there before.
        values: Values of some of them; None for none.
    """

    def __init__(self, *, tf32: bool = False, held: Iterable[Tensor] = (), values: KnownValues | None = None) -> None:
        super().__init__(values)
        self.memory = LiveMemory(held)
        self.calls: list[Call] = []
        self._tf32 = tf32

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and note ``func``."""
        if func.namespace == "profiler":
            return func(*args, **(kwargs or {}))
        with pause_profiling():
            result = _lay_out(func, args, self.values.run(func, args, kwargs or {}))
        if not _is_on_gpu((args, kwargs)):
            return result
        self.memory.note(result)
        name = func._schema.name.removeprefix("aten::").removeprefix(f"{MAMBA_CAPTURED}::")
        name = name.removeprefix(FBGEMM_CAPTURED.removesuffix(FBGEMM))
        if not NO_KERNEL.search(name):
            defaults = (argument.default_value for argument in func._schema.arguments[len(args) :])
            op, given = ("copy_", (result, *args)) if name in ("_to_copy", "clone") else (name, (*args, *defaults))
            self._note(op, given, result)
            for follower, inputs in list_following_ops(op, given, result):
                self._note(follower, inputs, result)
        return result

    def _note(self, op: str, given: Sequence[Any], result: Any) -> None:
        call = build_call(op, given, tf32=self._tf32)
        if call.kernels:
            mark_call(len(self.calls))
            reads, writes = self._describe(given), self._describe(result)
            is_backward = torch._C._current_graph_task_id() != NO_GRAPH_TASK
            self.calls.append(replace(call, reads=reads, writes=writes, is_backward=is_backward))

    def _describe(self, tensors: Any) -> tuple[Operand, ...]:
        found = [one for one in tree_leaves(tensors) if isinstance(one, Tensor)]
        return tuple(
            Operand(self.memory.number(one), tuple(one.shape), one.stride(), name_type(one.dtype)) for one in found
        )


def _is_on_gpu(given: Any) -> bool:
    """Return whether an op has to do with the GPU; values that were read back, and constants, are on the CPU."""
    tensors = [one for one in tree_leaves(given) if isinstance(one, Tensor)]
    return not tensors or any(one.device.type == "meta" for one in tensors)


def _lay_out(func: Any, args: tuple[Any, ...], result: Any) -> Any:
    """Return a convolution's result with its channels side by side where cuDNN gives it so, which PyTorch forgets."""
    if func is torch.ops.aten.convolution.default and any(map(lies_by_pixel, args[:2])):
        return torch.empty_like(result, memory_format=torch.channels_last)
    return result


def build_call(op: str, given: Sequence[Any], *, tf32: bool = False) -> Call:
    """Build the call of an op.

    ``op`` is its name without ``aten::``; that of another library with its namespace.
    """
    single = next((arg.dtype for arg in given if isinstance(arg, Tensor)), None) is torch.float32
    names = list_kernel_names(op, given)
    return Call(
        op if "::" in op or op in SCANS else f"aten::{op}",
        [_dims(arg) for arg in given],
        [_type(arg) for arg in given],
        [_concrete(arg) for arg in given],
        tuple(TF32 + name if tf32 and single and "gemm" in name else name for name in names),
        [_strides(arg) for arg in given],
    )


def _dims(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return list(arg.shape)
    # The profiler notes no sizes of lists in which tensors may be missing, such as indices.
    tensors = isinstance(arg, list | tuple) and bool(arg) and all(isinstance(item, Tensor) for item in arg)
    return [_dims(item) for item in arg] if tensors else []


def _strides(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return list(arg.stride())
    tensors = isinstance(arg, list | tuple) and bool(arg) and all(isinstance(item, Tensor) for item in arg)
    return [_strides(item) for item in arg] if tensors else []


def name_type(dtype: torch.dtype) -> str:
    """Return how the profiler calls a type."""
    return TYPES.get(dtype, str(dtype))


def _type(arg: Any) -> str:
    if isinstance(arg, Tensor):
        return name_type(arg.dtype)
    if isinstance(arg, list | tuple):
        return next((name_type(item.dtype) for item in arg if isinstance(item, Tensor)), "ScalarList")
    return "" if arg is None else "Scalar"


def _concrete(arg: Any) -> str:
    tensors = any(isinstance(item, Tensor) for item in tree_leaves(arg))
    return "" if arg is None or tensors else json.dumps(arg, default=str)
