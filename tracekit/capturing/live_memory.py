"""Follow how much memory a program's tensors hold at once, from when PyTorch makes and drops them."""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

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
        for tensor in held:
            self.number(tensor)

    def note(self, result: Any) -> None:
        """Note the tensors of an op's result; views share what they are views of."""
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                self._note_storage(one.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

    def _note_storage(self, storage: Any) -> None:
        if storage._cdata in self._known:
            return
        size = round_to_block(storage.nbytes())
        self._add(storage, size)
        self._live_bytes += size

    def _add(self, storage: Any, size: int = 0) -> None:
        self._known[storage._cdata] = self._numbered
        self._numbered += 1
        weakref.finalize(storage, self._drop, storage._cdata, size)

    def _drop(self, key: int, size: int) -> None:
        self._known.pop(key, None)
        self._live_bytes -= size

    def number(self, tensor: Tensor) -> int:
        """Return the number of a tensor's memory, which no other has had before."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._add(storage)
        return self._known[storage._cdata]


def round_to_block(size: int) -> int:
    """Return what the allocator takes for so many bytes."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def sum_bytes(tensors: Iterable[Tensor]) -> int:
    """Return what some tensors hold, each storage once."""
    sizes = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(map(round_to_block, sizes.values()))
