"""Whose attention kernels run, where a row's `framework` says so, and what of that another kind of GPU has."""

from __future__ import annotations

import polars as pl

from predictors.machine import Machine

ATTENTION_STACKS = ("fa2", "fa3", "fa4", "flashinfer", "triton", "trtllm-gen")
"""FlashAttention by its major version, FlashInfer's own, Triton's, and TensorRT-LLM's for Blackwell."""

_ELSEWHERE: dict[str, dict[str, str | None]] = {
    "fa3": {"wgmma": "fa3", "mma": "fa2"},
    "fa4": {"tcgen05": "fa4", "wgmma": "fa3", "mma": "fa2"},
    "trtllm-gen": {"tcgen05": "trtllm-gen"},
}
"""Stacks made for some matrix units only -> class of GPUs -> what its users run there; elsewhere nobody knows."""


def stack_on(gpu: Machine) -> pl.Expr:
    """`framework` as it is on a GPU: null where the stack has no kernels for it."""
    there = {stack: classes.get(gpu.tensor_class) for stack, classes in _ELSEWHERE.items()}
    return pl.col("framework").replace(there)
