"""Fourier transforms: cuFFT's and rocFFT's kernels, by the op that calls the library."""

import math

from tracekit.workload.ops.vector import Columns, Traffic, columns_of
from tracekit.workload.signature import Signature

FLOPS = 5
"""Per element and level of a complex transform; a real one needs half (http://www.fftw.org/speed/method.html)."""

WIDER = {"fp16": 4, "fp32": 8, "fp64": 16}
"""Bytes of a complex number by the precision of its parts."""


def _complex(signature: Signature, item_bytes: int) -> Columns | None:
    """Input and axes; an output like the input."""
    x, axes = signature.tensor(0), _axes(signature)
    if x is None or axes is None:
        return None
    bytes_ = 2 * x.numel * x.item_bytes(2 * item_bytes)
    return _columns(x.shape, axes, FLOPS, bytes_)


def _from_real(signature: Signature, item_bytes: int) -> Columns | None:
    """Input, axes, normalisation, and whether only half of the last axis is written, which has all that there is."""
    x, axes = signature.tensor(0), _axes(signature)
    if x is None or not axes:
        return None
    last = max(x.shape[axes[-1]], 1)
    written = x.numel // last * (last // 2 + 1) if signature.value(3) else x.numel
    narrow = x.item_bytes(item_bytes)
    bytes_ = x.numel * narrow + written * WIDER.get(x.dtype or "", 2 * narrow)
    return _columns(x.shape, axes, FLOPS / 2, bytes_)


def _to_real(signature: Signature, item_bytes: int) -> Columns | None:
    """Input, axes, normalisation, and the length of the output's last axis."""
    x, axes, last = signature.tensor(0), _axes(signature), signature.whole(3)
    if x is None or not axes or last is None:
        return None
    shape = list(x.shape)
    shape[axes[-1]] = last
    wide = x.item_bytes(2 * item_bytes)
    return _columns(tuple(shape), axes, FLOPS / 2, x.numel * wide + math.prod(shape) * wide // 2)


def _axes(signature: Signature) -> list[int] | None:
    """Along which it transforms; ``None`` where that wasn't recorded, or the input has no such axis."""
    axes, sides = signature.numbers(1), len(signature.shape(0) or ())
    return axes if axes is not None and all(-sides <= axis < sides for axis in axes) else None


def _columns(shape: tuple[int, ...], axes: list[int], flops: float, bytes_: int) -> Columns:
    length = math.prod(shape[axis] for axis in axes)
    return columns_of(shape, flops=round(flops * math.prod(shape) * math.log2(max(length, 1))), bytes_=bytes_)


TRAFFIC: dict[str, Traffic] = {
    "aten::_fft_c2c": _complex,
    "aten::_fft_r2c": _from_real,
    "aten::_fft_c2r": _to_real,
}
