"""Turn attention as a CPU runs it into the call that CUDA makes of it."""

from typing import Any

import torch

from tracekit.capturing.cuda_choices import MAX_FLASH_WIDTH
from tracekit.capturing.kernel_names import list_kernel_names
from tracekit.capturing.ops import Call
from tracekit.workload.signature import Signature, Tensor

ATTENTION = "scaled_dot_product_attention"
ARGUMENTS = {
    ATTENTION: ("query", "key", "value", "mask", "dropout", "causal"),
    "_scaled_dot_product_flash_attention_for_cpu": ("query", "key", "value", "dropout", "causal", "mask"),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        *("grad", "query", "key", "value", "output", "sums", "dropout", "causal", "mask"),
    ),
}
"""Ops of a CPU, and their arguments (PyTorch's native_functions.yaml)."""
FLASH = {
    False: ("_scaled_dot_product_flash_attention", ("query", "key", "value", "dropout", "causal")),
    True: (
        "_scaled_dot_product_flash_attention_backward",
        ("grad", "query", "key", "value", "output", "sums", "", "", "", "", "dropout", "causal"),
    ),
}
EFFICIENT = {
    False: ("_scaled_dot_product_efficient_attention", ("query", "key", "value", "mask", "", "dropout", "causal")),
    True: (
        "_scaled_dot_product_efficient_attention_backward",
        ("grad", "query", "key", "value", "mask", "output", "sums", "", "", "dropout", "", "causal"),
    ),
}
"""CUDA's ops, forward and backward, and where their arguments are; blank: what a CPU's doesn't have."""


def build_attention_call(op: str, inputs: Signature) -> Call:
    """Build the call of CUDA's kernel: FlashAttention in half precision without a mask, else the memory-efficient one.

    Args:
        op: One of :data:`ARGUMENTS`.
        inputs: Its inputs.
    """
    place = {name: index for index, name in enumerate(ARGUMENTS[op])}
    query, value, mask = (inputs.get_tensor(place[name]) for name in ("query", "value", "mask"))
    name, arguments = (FLASH if _suits_flash(query, value, mask) else EFFICIENT)["grad" in place]

    def pick(values: list[Any], blank: Any) -> list[Any]:
        found = (place.get(argument, len(values)) for argument in arguments)
        return [values[index] if index < len(values) else blank for index in found]

    told = list(inputs.types)
    if mask and mask.dtype == "bool":
        told[place["mask"]] = told[place["query"]]  # converted to what is added to the scores
    dims, types, concrete = pick(inputs.dims, []), pick(told, ""), pick(inputs.concrete_inputs, "")
    heads = [None if one is None else torch.empty(one.shape, device="meta") for one in (query, query)]
    return Call(f"aten::{name}", dims, types, concrete, list_kernel_names(name, heads))


def _suits_flash(query: Tensor | None, value: Tensor | None, mask: Tensor | None) -> bool:
    if query is None or value is None or query.dtype not in ("fp16", "bf16") or (mask and mask.shape):
        return False
    return query.shape[-1] == value.shape[-1] <= MAX_FLASH_WIDTH
