"""Casts to narrow formats and gated activations of serving engines, which take their output as an argument."""

from tracekit.workload.ops.vector import Traffic, every_tensor_once

TRAFFIC: dict[str, Traffic] = {
    "_C::static_scaled_fp8_quant": every_tensor_once(2),
    "_C::dynamic_scaled_fp8_quant": every_tensor_once(2),
    "_C::dynamic_per_token_scaled_fp8_quant": every_tensor_once(2),
    "_C::silu_and_mul": every_tensor_once(5),
    "_C::gelu_and_mul": every_tensor_once(10),
    "sgl_kernel::silu_and_mul": every_tensor_once(5),
    "sgl_kernel::gelu_and_mul": every_tensor_once(10),
    "sgl_kernel::gelu_tanh_and_mul": every_tensor_once(10),
}
