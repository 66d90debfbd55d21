"""Casts to narrow formats and back, optimizers with narrow states, and gated activations of serving engines."""

import math

from tracekit.workload.ops.vector import Columns, Traffic, columns_of, every_tensor_once, read_and_write, size_of
from tracekit.workload.signature import Signature


def _cast(bytes_per_element: float) -> Traffic:
    """The input read, as many narrow elements written."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x = signature.at(0)
        if not x:
            return None
        bytes_ = x[0].size_bytes(item_bytes) + round(x[0].numel * bytes_per_element)
        return columns_of(x[0].shape, flops=x[0].numel, bytes_=bytes_)

    return columns


def _cast_back(*, shape: int | None = None) -> Traffic:
    """All inputs read, elements of the kernel's type written: as many as in the first, or of the shape at ``shape``."""

    def columns(signature: Signature, item_bytes: int) -> Columns | None:
        x, sizes = signature.at(0), None if shape is None else signature.numbers(shape)
        if not x or (shape is not None and sizes is None):
            return None
        wide = x[0].shape if sizes is None else tuple(sizes)
        written = math.prod(wide) * item_bytes
        return columns_of(wide, flops=math.prod(wide), bytes_=size_of(signature.tensors, item_bytes) + written)

    return columns


TRAFFIC: dict[str, Traffic] = {
    "_C::static_scaled_fp8_quant": every_tensor_once(2),
    "_C::dynamic_scaled_fp8_quant": every_tensor_once(2),
    "_C::dynamic_per_token_scaled_fp8_quant": every_tensor_once(2),
    "_C::silu_and_mul": every_tensor_once(5),
    "_C::gelu_and_mul": every_tensor_once(10),
    "sgl_kernel::silu_and_mul": every_tensor_once(5),
    "sgl_kernel::gelu_and_mul": every_tensor_once(10),
    "sgl_kernel::gelu_tanh_and_mul": every_tensor_once(10),
    "bitsandbytes::int8_vectorwise_quant": _cast(1),
    "bitsandbytes::quantize_blockwise": _cast(1),
    "bitsandbytes::quantize_4bit": _cast(0.5),
    "bitsandbytes::int8_mm_dequant": _cast_back(),
    "bitsandbytes::dequantize_blockwise": _cast_back(),
    "bitsandbytes::dequantize_4bit": _cast_back(shape=4),
    "bitsandbytes::optimizer_update_32bit": read_and_write(both=(2, 3, 4), read=(1,)),
    "bitsandbytes::optimizer_update_8bit_blockwise": read_and_write(both=(2, 3, 4), read=(1,)),
}
