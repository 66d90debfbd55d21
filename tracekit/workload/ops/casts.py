"""Compute casts to narrow formats and back, optimizers with narrow states, and serving engines' gated activations."""

import math

from tracekit.workload.ops.memory_traffic import (
    Columns,
    TrafficFormula,
    build_traffic_columns,
    make_read_write,
    make_single_pass,
    sum_bytes,
)
from tracekit.workload.signature import Signature


def _make_cast(bytes_per_element: float) -> TrafficFormula:
    """Make the formula of a cast: the input read, as many narrow elements written."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x = signature.get_tensors(0)
        if not x:
            return None
        bytes_ = x[0].compute_bytes(item_bytes) + round(x[0].numel * bytes_per_element)
        return build_traffic_columns(x[0].shape, flops=x[0].numel, bytes_=bytes_)

    return columns


def _make_cast_back(*, shape: int | None = None) -> TrafficFormula:
    """Make the formula of a cast back to the kernel's type: all inputs read, the result written.

    The result has as many elements as the first input, or the shape at ``shape``.
    """

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x, sizes = signature.get_tensors(0), None if shape is None else signature.get_integers(shape)
        if not x or (shape is not None and sizes is None):
            return None
        wide = x[0].shape if sizes is None else tuple(sizes)
        written = math.prod(wide) * item_bytes
        return build_traffic_columns(
            wide, flops=math.prod(wide), bytes_=sum_bytes(signature.tensors, item_bytes) + written
        )

    return columns


TRAFFIC: dict[str, TrafficFormula] = {
    "_C::static_scaled_fp8_quant": make_single_pass(2),
    "_C::dynamic_scaled_fp8_quant": make_single_pass(2),
    "_C::dynamic_per_token_scaled_fp8_quant": make_single_pass(2),
    "_C::silu_and_mul": make_single_pass(5),
    "_C::gelu_and_mul": make_single_pass(10),
    "sgl_kernel::silu_and_mul": make_single_pass(5),
    "sgl_kernel::gelu_and_mul": make_single_pass(10),
    "sgl_kernel::gelu_tanh_and_mul": make_single_pass(10),
    "bitsandbytes::int8_vectorwise_quant": _make_cast(1),
    "bitsandbytes::quantize_blockwise": _make_cast(1),
    "bitsandbytes::quantize_4bit": _make_cast(0.5),
    "bitsandbytes::int8_mm_dequant": _make_cast_back(),
    "bitsandbytes::dequantize_blockwise": _make_cast_back(),
    "bitsandbytes::dequantize_4bit": _make_cast_back(shape=4),
    "bitsandbytes::optimizer_update_32bit": make_read_write(both=(2, 3, 4), read=(1,)),
    "bitsandbytes::optimizer_update_8bit_blockwise": make_read_write(both=(2, 3, 4), read=(1,)),
}
