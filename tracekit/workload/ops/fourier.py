"""Compute Fourier transforms: kernels of cuFFT and rocFFT, by the op that calls the library."""

import math

from tracekit.workload.ops.memory_traffic import Columns, TrafficFormula, build_traffic_columns
from tracekit.workload.signature import Signature

FLOPS_PER_LEVEL = 5
"""FLOPs per element and level of a complex transform; a real one needs half (http://www.fftw.org/speed/method.html)."""

COMPLEX_BYTES = {"fp16": 4, "fp32": 8, "fp64": 16}
"""Bytes of a complex number by the precision of its parts."""


def _compute_complex(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a complex transform of input and axes; the output has the input's shape."""
    x, axes = signature.get_tensor(0), _parse_axes(signature)
    if x is None or axes is None:
        return None
    bytes_ = 2 * x.numel * x.get_item_bytes(2 * item_bytes)
    return _build_columns(x.shape, axes, FLOPS_PER_LEVEL, bytes_)


def _compute_from_real(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a transform of real input, axes, normalisation, and whether to write only half of the last axis.

    The other half is redundant, as the output is symmetric.
    """
    x, axes = signature.get_tensor(0), _parse_axes(signature)
    if x is None or not axes:
        return None
    last = max(x.shape[axes[-1]], 1)
    written = x.numel // last * (last // 2 + 1) if signature.get_value(3) else x.numel
    narrow = x.get_item_bytes(item_bytes)
    bytes_ = x.numel * narrow + written * COMPLEX_BYTES.get(x.dtype or "", 2 * narrow)
    return _build_columns(x.shape, axes, FLOPS_PER_LEVEL / 2, bytes_)


def _compute_to_real(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a transform to real numbers from input, axes, normalisation, and the length of the output's last axis."""
    x, axes, last = signature.get_tensor(0), _parse_axes(signature), signature.get_integer(3)
    if x is None or not axes or last is None:
        return None
    shape = list(x.shape)
    shape[axes[-1]] = last
    wide = x.get_item_bytes(2 * item_bytes)
    return _build_columns(tuple(shape), axes, FLOPS_PER_LEVEL / 2, x.numel * wide + math.prod(shape) * wide // 2)


def _parse_axes(signature: Signature) -> list[int] | None:
    """Parse the axes of the transform; ``None`` if they weren't recorded, or the input has no such axis."""
    axes, sides = signature.get_integers(1), len(signature.get_shape(0) or ())
    return axes if axes is not None and all(-sides <= axis < sides for axis in axes) else None


def _build_columns(shape: tuple[int, ...], axes: list[int], flops: float, bytes_: int) -> Columns:
    length = math.prod(shape[axis] for axis in axes)
    return build_traffic_columns(
        shape, flops=round(flops * math.prod(shape) * math.log2(max(length, 1))), bytes_=bytes_
    )


TRAFFIC: dict[str, TrafficFormula] = {
    "aten::_fft_c2c": _compute_complex,
    "aten::_fft_r2c": _compute_from_real,
    "aten::_fft_c2r": _compute_to_real,
}
