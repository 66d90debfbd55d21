"""Values of tensors that no data decides: positions, masks, token ids, sizes.

A capture runs on the meta device, whose tensors have no data, but models read some values back (``mask.all()``,
``lengths.tolist()``) or choose elements by them (``x[mask]``). What was made of constants is computed on the CPU beside
the capture, in memory that mirrors the meta tensors', so that views and updates in place follow::

    meta    ids --> ids == pad --> .any()     bool() is asked for
    CPU     ids --> ids == pad --> .any()  -> False

Values that floating-point data decide stay unknown, but for what a healthy step has: no infinity, nothing that is no
number, and choices of the largest, such as a router's of experts, that fall evenly.
"""

import weakref
from collections.abc import Iterator, Mapping
from math import isinf
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tracekit.errors import CaptureError
from tracekit.messages import models as messages

MAX_WHOLE, MAX_FLOATS = 1 << 20, 1 << 12
"""Elements of the largest tensors of whole numbers or bools, and of floats, whose values are kept."""
UNKNOWN_FACTORY = "empty"
"""In the names of ops that make tensors of any values."""
DATA_DEPENDENT = (
    *(torch.ops.aten.nonzero.default, torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default),
    *(torch.ops.aten.masked_select.default, torch.ops.aten.repeat_interleave.Tensor, torch.ops.aten.bincount.default),
    *(torch.ops.aten._unique2.default, torch.ops.aten.unique_consecutive.default, torch.ops.aten.unique_dim.default),
)
"""Ops whose results' sizes, or that themselves, are values."""
INDEXED = (
    *(torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default),
    torch.ops.aten._index_put_impl_.default,
)
"""Ops that take elements by masks, too."""
NEVER_IN_HEALTHY = ("isnan", "isinf")

CHOICES = ("aten::topk", "aten::argmax", "aten::max")
"""Ops that tell where the largest values are."""


class KnownValues:
    """The values of the tensors of a capture that are known, by their memory."""

    def __init__(self) -> None:
        self._mirrors: dict[int, Any] = {}

    def find(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's values, in memory of the CPU that is theirs; None where they aren't known."""
        if tensor.device.type == "cpu":
            return tensor
        mirror = self._mirrors.get(tensor.untyped_storage()._cdata)
        if mirror is None:
            return None
        values = torch.empty(0, dtype=tensor.dtype)
        return values.set_(mirror, tensor.storage_offset(), tensor.shape, tensor.stride())

    def learn(self, tensor: Tensor, values: Tensor) -> None:
        """Note the values of a meta tensor."""
        storage = tensor.untyped_storage()
        mirror = torch.zeros(storage.nbytes(), dtype=torch.uint8).untyped_storage()
        if storage._cdata not in self._mirrors:
            weakref.finalize(storage, self._mirrors.pop, storage._cdata, None)
        self._mirrors[storage._cdata] = mirror
        known = self.find(tensor)
        if known is not None:
            known.copy_(values)

    def move_to_meta(self, given: Any) -> Any:
        """Return tensors of the CPU as tensors without data whose values are known."""

        def move(one: Any) -> Any:
            if not isinstance(one, Tensor) or one.device.type != "cpu" or isinstance(one, torch.nn.Parameter):
                return one
            moved = one.detach().to("meta").requires_grad_(one.requires_grad)
            if _is_small(one):
                self.learn(moved, one.detach())
            return moved

        return tree_map(move, given)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an op, and note its results' values where its inputs' are known.

        Raises:
            CaptureError: It needs values that aren't known.
        """
        if func in INDEXED:
            args = (args[0], [place for one in args[1] for place in self._list_places(one)], *args[2:])
        needs_values = func in DATA_DEPENDENT or _is_read_back(func, args, kwargs)
        known = self._compute(func, args, kwargs) if needs_values else None
        if needs_values and known is None:
            raise CaptureError(messages.VALUES_UNKNOWN(op=func._schema.name))
        if known is not None:
            return known if _is_read_back(func, args, kwargs) else self.move_to_meta(known)
        result = func(*args, **kwargs)
        self._follow(func, args, kwargs, result)
        return result

    def _list_places(self, index: Any) -> tuple[Any, ...]:
        """List an index; of a mask whose values are known, the places along each of its axes."""
        is_mask = isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)
        if not is_mask:
            return (index,)
        known = self.find(index)
        if known is None:
            raise CaptureError(messages.VALUES_UNKNOWN(op="aten::index"))
        return tuple(self.move_to_meta(one) for one in known.nonzero(as_tuple=True))

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Update the mirrors after an op."""
        written = list(_list_written(func, args, kwargs))
        made = [one for one in tree_leaves(result) if isinstance(one, Tensor) and one.device.type == "meta"]
        fresh = [one for one in made if one.untyped_storage()._cdata not in self._mirrors]
        if written:
            if self._compute(func, args, kwargs) is None:
                for one in written:
                    self._mirrors.pop(one.untyped_storage()._cdata, None)
        elif fresh and all(map(_is_small, fresh)) and not func.is_view:
            values = _guess_healthy(func, args, fresh) or self._compute(func, args, kwargs)
            if values is None and func._schema.name in CHOICES and made[-1].dtype is torch.int64:
                self.learn(made[-1], _choose_evenly(args, made[-1]))
            if values is not None:
                for one, value in zip(made, tree_leaves(values), strict=True):
                    self.learn(one, value)

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return an op's results on the CPU; None where an input's values aren't known."""
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if is_random or UNKNOWN_FACTORY in func._schema.name or not all(map(_is_small, tensors)):
            return None
        if any(self.find(one) is None for one in tensors):
            return None
        given = tree_map(lambda one: self.find(one) if isinstance(one, Tensor) else one, (args, dict(kwargs)))
        if kwargs.get("device") is not None:
            given[1]["device"] = torch.device("cpu")
        try:
            return func(*given[0], **given[1])
        except (RuntimeError, NotImplementedError):
            return None


class ReadingMode(TorchDispatchMode):
    """Mode in which ops on tensors without data may ask for known values.

    Args:
        values: Those that are known at its beginning; None for none.
    """

    def __init__(self, values: KnownValues | None = None) -> None:
        super().__init__()
        self.values = values or KnownValues()

    def __enter__(self) -> Self:
        """Begin it."""
        self._constants = _ConstantsMode()
        self._constants.__enter__()
        return super().__enter__()

    def __exit__(self, *details: Any) -> None:
        """End it."""
        super().__exit__(*details)
        self._constants.__exit__(*details)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``."""
        return self.values.run(func, args, kwargs or {})


class _ConstantsMode(TorchFunctionMode):
    """Mode that makes tensors of Python's numbers on the CPU and copies them, so that their values are seen."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``."""
        given = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and args and not isinstance(args[0], Tensor):
            made = func(*args, **(given | {"device": "cpu"}))
            return made.to("meta") if str(given.get("device", "meta")) != "cpu" else made
        if func is Tensor.__format__ and args[0].dim() == 0 and args[0].device.type == "meta":
            return format(args[0].item(), *args[1:])
        if func is Tensor.__getitem__ and isinstance(args[1], tuple):
            places = tuple(torch.tensor(one, device="cpu") if isinstance(one, list) else one for one in args[1])
            return func(args[0], places)
        return func(*args, **given)


def _is_small(tensor: Tensor) -> bool:
    """Return whether a tensor's values are worth keeping."""
    most = MAX_FLOATS if tensor.is_floating_point() or tensor.is_complex() else MAX_WHOLE
    return tensor.numel() <= most and tensor.untyped_storage().nbytes() <= MAX_WHOLE * torch.int64.itemsize


def _is_read_back(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an op's result is no tensor without data."""
    if func is torch.ops.aten._to_copy.default:
        device = kwargs.get("device")
        return device is not None and device.type == "cpu" and args[0].device.type == "meta"
    return func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


def _list_written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """List the tensors that an op writes to."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from (one for one in tree_leaves(given) if isinstance(one, Tensor))


def _choose_evenly(args: tuple[Any, ...], made: Tensor) -> Tensor:
    """Return places of the largest values that go through all in turn, as a balanced router's do."""
    widths = args[0].shape
    axes = [one for one in args[1:3] if isinstance(one, int) and not isinstance(one, bool)]
    axis = -1 if made.dim() == len(widths) or not axes else axes[0]
    return torch.arange(made.numel()).view(made.shape) % max(widths[axis] if widths else 1, 1)


def _guess_healthy(func: Any, args: tuple[Any, ...], made: list[Tensor]) -> list[Tensor] | None:
    """Return what a healthy step has where an op looks for infinities and what is no number."""
    name = func._schema.name.removeprefix("aten::")
    if name in NEVER_IN_HEALTHY:
        return [torch.zeros(one.shape, dtype=one.dtype) for one in made]
    if name in ("eq", "ne") and len(args) > 1:
        is_same, is_endless = args[0] is args[1], isinstance(args[1], float) and isinf(args[1])
        if is_same or is_endless:
            return [torch.full(one.shape, (name == "eq") == is_same) for one in made]
    return None
