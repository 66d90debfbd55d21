"""Define the analytic latency law: a floor plus compute and memory time, with a few fitted constants per law.

Every law has the form ``floor + extra + (compute^4 + memory^4)^(1/4)``. Of the tiles and splits of a GEMM, the one with
the least time is taken, as a library's heuristics would choose it. All constants are positive and dimensionless, or in
clock cycles, so that they apply to an unmeasured GPU as well. Constants are stored as logarithms: the effect of a GPU,
of a class of matrix units or of a framework is an offset added to one of them.

For example, a kernel with 2 us of floor, 30 us of compute and 20 us of memory time takes 2 + (30^4 + 20^4)^(1/4) = 33.4
us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from predictors.arrays import Columns, Floats
from predictors.hardware import Hardware
from predictors.kernel_identity import NARROW_WEIGHT_FORMATS, SERVED_FORMATS
from predictors.kernels import (
    CHUNKS_LAW,
    CONVOLUTION_LAW,
    DEPTHWISE_LAW,
    GROUPED_LAW,
    HYPER_LAW,
    INDEXER_LAW,
    MIOPEN_FP32_LAW,
    MIOPEN_GROUPED_LAW,
    MIOPEN_HALF_LAW,
    SPARSE_LAW,
    STEP_LAW,
)
from predictors.laws.attention import (
    compute_decode_terms,
    compute_encoder_terms,
    compute_latent_terms,
    compute_prefill_terms,
    compute_sequence_terms,
)
from predictors.laws.gemm import (
    compute_conv_fp32_terms,
    compute_conv_terms,
    compute_cudnn_grouped_terms,
    compute_gemm_fp32_terms,
    compute_gemm_terms,
    compute_grouped_conv_terms,
    compute_miopen_terms,
    compute_moe_terms,
)
from predictors.laws.mixers import compute_chunk_terms, compute_indexer_terms, compute_sparse_terms
from predictors.laws.terms import Constants, LatencyTerms
from predictors.laws.vector import (
    compute_depthwise_gradient_terms,
    compute_lookup_terms,
    compute_memcpy_terms,
    compute_quantise_terms,
    compute_row_terms,
    compute_softmax_terms,
    compute_stream_terms,
)


@dataclass(frozen=True)
class Law:
    """Latency law of one kernel family: its time from shape and datasheet.

    Attributes:
        terms: Maps columns, GPU and constants to ``LatencyTerms``.
        priors: Constant -> prior median, and prior standard deviation of the logarithm.
        effects: Constants that a GPU, a class of matrix units or a framework may shift.
        floor_is_exact: Whether the learned correction leaves the floor unchanged, so that the time grows with the work.
        covers_op: Whether the terms are those of the whole op, of which a kernel does a part; else those of the
            kernel's own bytes.
        unseen_gpu_fraction: Fraction of the learned correction that applies on a GPU if neither it nor a sibling was in
            its training data.
    """

    terms: Callable[[Columns, Hardware, Constants], LatencyTerms]
    priors: Mapping[str, tuple[float, float]]
    effects: tuple[str, ...] = ("floor", "compute", "memory")
    floor_is_exact: bool = False
    covers_op: bool = True
    unseen_gpu_fraction: float = 0.75

    def evaluate(self, x: Columns, share: Floats, gpu: Hardware, c: Constants) -> LatencyTerms:
        """The terms of kernels that each do a share of their op's work; the floor is a kernel's own."""
        if not self.covers_op:
            return self.terms(x, gpu, c)
        terms = self.terms({**x, "work_bytes": x["work_bytes"] / share}, gpu, c)
        return replace(terms, compute_us=terms.compute_us * share, memory_us=terms.memory_us * share)

    def scale_to_op(self, x: Columns, terms: LatencyTerms) -> tuple[Columns, LatencyTerms]:
        """Columns and terms of the ops that kernels do a share of, from those of the kernels."""
        if not self.covers_op:
            return x, terms
        share = x["share"]
        whole = replace(terms, compute_us=terms.compute_us / share, memory_us=terms.memory_us / share)
        return {**x, "work_flops": x["work_flops"] / share, "work_bytes": x["work_bytes"] / share}, whole

    def compute_correctable_fraction(self, terms: LatencyTerms) -> Floats:
        """The part of each kernel's time that the learned correction may change."""
        return terms.body_us / terms.time_us if self.floor_is_exact else np.ones_like(terms.floor_us)


_SHARED_PRIORS = {"floor": (4500.0, 0.4), "compute": (0.85, 0.2), "memory": (0.85, 0.15), "cache": (0.9, 0.2),
           "cache_share": (0.7, 0.4), "fill": (0.1, 0.7)}  # fmt: skip
_GEMM_PRIORS = {"feed": (0.8, 0.5), "latency": (2.0, 0.5), "prologue": (64.0, 0.7), "quantised": (0.6, 0.4)}

# Hardly fitted: clocks of an SM for each access, as an A100's align1 kernel takes (64 x 64 tiles on 48 SMs, k = 4096,
# 139 us); and watts per TFLOP/s in 16 bit, in units of TSMC 16 nm, with which an A100 holds its clock.
_FIXED_PRIORS = {"unaligned": (0.37, 0.05), "matrix_power": (3.2, 0.02)}

GEMM = Law(
    compute_gemm_terms,
    _SHARED_PRIORS | _GEMM_PRIORS | _FIXED_PRIORS | {"reduce": (1.5, 0.7), "cold": (1.5, 0.3)},
)
CONV = replace(GEMM, terms=compute_conv_terms)
GEMM_FP32 = Law(
    compute_gemm_fp32_terms,
    dict(GEMM.priors)
    | {"cold": (1.0, 0.01), "power": (16.0, 0.2), "floor": (4500.0, 0.3)}
    | {"shared_lanes": (0.75, 0.1), "vector": (0.85, 0.1)},
    effects=("compute", "memory"),
    floor_is_exact=True,
    unseen_gpu_fraction=0.4,  # with more, narrow products on a B200 take less time the wider they are
)
CONV_FP32 = replace(
    GEMM_FP32,
    terms=compute_conv_fp32_terms,
    priors=dict(GEMM_FP32.priors)
    | {"compute": (0.8, 0.1), "batched": (0.85, 0.1), "fused": (0.9, 0.1), "transform": (0.6, 0.2)}
    | {"feed": (0.3, 0.3), "prologue": (8.0, 0.5), "start": (16.0, 0.5)}
    | {"fill": (0.1, 0.2), "reduce": (1.5, 0.2), "cache_share": (0.7, 0.1)},
)
# The learned corrections follow MIOpen's choices on all AMD GPUs. So the law has no rates of one GPU: what they leave
# would be missing on the next.
MIOPEN = replace(
    CONV,
    terms=compute_miopen_terms,
    priors=dict(CONV.priors) | {"loads": (0.06, 0.7)},
    effects=("floor",),
    unseen_gpu_fraction=1.0,
)
MIOPEN_GROUPED = replace(MIOPEN, terms=compute_grouped_conv_terms, priors=dict(MIOPEN.priors) | {"direct": (0.2, 0.7)})
PREFILL = Law(
    compute_prefill_terms,
    _SHARED_PRIORS
    | {"softmax": (1.0, 0.7), "prologue": (128.0, 0.7), "quantised": (0.6, 0.4)}
    | {"traffic": (2.0, 0.5), "per_block": (3000.0, 1.0), "masked": (0.05, 1.5)},
    effects=("floor", "compute", "memory", "traffic", "per_block", "masked"),
)
SEQUENCE = Law(
    compute_sequence_terms,
    {name: prior for name, prior in PREFILL.priors.items() if name != "masked"}
    # 2.5 times the GEMMs at 0.87 of the rate, on an H100 (FlashAttention-3, arXiv:2407.08608, figures 5 and 6).
    | {"traffic": (0.2, 0.7), "softmax": (0.7, 0.4), "prologue": (64.0, 0.7), "backward": (2.9, 0.2)}
    # Of blocks of 256 queries (two of 128 at once, FlashAttention-4) the edge is 2.
    | {"gradient": (8.0, 0.5), "wide": (1.3, 0.2), "scaled": (1.1, 0.1), "edge": (1.0, 0.4)},
    effects=("floor", "compute", "memory", "per_block", "softmax", "gradient"),
)
DECODE = Law(
    compute_decode_terms,
    _SHARED_PRIORS
    | {"per_key": (4.0, 1.0), "per_block": (1000.0, 1.0), "serial": (10.0, 1.0), "serial_power": (0.5, 0.3)}
    | {"cache_share": (1.1, 0.15), "again": (0.7, 0.4)},
    effects=("floor", "compute", "memory", "per_block"),
)
LATENT = Law(
    compute_latent_terms,
    {name: prior for name, prior in DECODE.priors.items() if name != "again"},
    effects=DECODE.effects,
)
MOE = Law(
    compute_moe_terms,
    _SHARED_PRIORS
    | _GEMM_PRIORS
    | {"ep_power": (0.6, 0.5), "evenness": (0.5, 0.5), "permute": (1.0, 0.7), "ragged": (1.0, 0.5)}
    | {"cache_share": (1.1, 0.15)},
    effects=("floor", "compute", "memory", "ep_power"),
)
STREAM = Law(
    compute_stream_terms,
    {"floor": (3500.0, 0.3), "element": (0.18, 0.1), "indexed": (4.0, 0.3), "alone": (0.3, 0.3)}
    | {"across": (2.4, 0.2), "compute": (1.0, 0.01)}
    | {name: _SHARED_PRIORS[name] for name in ("memory", "cache", "cache_share")},
    effects=("floor", "compute", "memory", "indexed", "across"),
    floor_is_exact=True,
    covers_op=False,
    unseen_gpu_fraction=0.4,  # what is left of GPUs without many measurements is within 5 %
)
LOOKUP = replace(
    STREAM,
    terms=compute_lookup_terms,
    unseen_gpu_fraction=0.0,
    priors=dict(STREAM.priors) | {"memory": (0.5, 0.15)},  # of rows anywhere: FBGEMM's updates on a V100
)
"""Few look-ups were measured: what the law leaves of three GPUs says nothing of a fourth."""
ROWS = replace(
    STREAM,
    terms=compute_row_terms,
    effects=("floor", "compute", "memory"),
    unseen_gpu_fraction=0.75,
    priors=dict(STREAM.priors)
    | {"element": (1.0, 0.5), "narrow": (0.5, 0.4), "uneven": (1.1, 0.2), "again": (1.2, 0.2), "alone": (0.15, 0.5)}
    | {"by_size": (0.6, 0.5), "unheld": (1.0, 0.1), "reread": (1.8, 0.2)}
    # Tight: the only measured backward norms are a V100's batch norms, whose kernels differ from layer norms'.
    | {"backward": (1.0, 0.05)}
    | {"squares": (0.5, 0.5)},
)
SOFTMAX = replace(
    ROWS,
    terms=compute_softmax_terms,
    priors=dict(ROWS.priors) | {"by_size": (0.1, 0.5), "unheld": (0.5, 0.2), "backward": (0.5, 0.5)},
)

QUANTISE = replace(
    STREAM, terms=compute_quantise_terms, priors=dict(STREAM.priors) | {"scale": (3.0, 0.5)}, floor_is_exact=False
)

CHUNKED = Law(
    compute_chunk_terms,
    _SHARED_PRIORS
    # What eight GPUs have in common (aiconfigurator-core 0.12.0): without weights of the law, it stands for them.
    | {"floor": (35000.0, 0.5), "compute": (0.08, 0.7), "per_chunk": (4600.0, 0.7), "passes": (2.5, 0.7)},
)
SPARSE = Law(
    compute_sparse_terms,
    {name: _SHARED_PRIORS[name] for name in ("floor", "compute", "memory", "cache")} | {"quantised": (0.9, 0.2)},
)
INDEXER = Law(compute_indexer_terms, _SHARED_PRIORS | {"quantised": (0.6, 0.4), "sum": (0.5, 0.7)})
# Their element's clocks are those of no plain pass: a delta rule's step, taps of a convolution, mixing of streams.
MIXED_STREAM = replace(
    STREAM, priors=dict(STREAM.priors) | {"element": (0.3, 0.7), "floor": (5000.0, 0.5)}, floor_is_exact=False
)

# From PyTorch's pooling on an H100 (KernelBench, level 1): 0.3 to 0.35 clocks per element of a window.
REDUCTION = replace(STREAM, priors=dict(STREAM.priors) | {"indexed": (2.2, 0.2)})

LAWS: dict[str, Law] = {
    **{f"gemm {d}": GEMM for d in (*SERVED_FORMATS, *NARROW_WEIGHT_FORMATS)},
    **{f"conv {d}": CONV for d in (*SERVED_FORMATS, *NARROW_WEIGHT_FORMATS)},
    **{f"moe {d}": MOE for d in ("fp32", *SERVED_FORMATS, *NARROW_WEIGHT_FORMATS)},
    GROUPED_LAW: replace(CONV, terms=compute_cudnn_grouped_terms),
    DEPTHWISE_LAW: replace(STREAM, terms=compute_depthwise_gradient_terms),
    MIOPEN_HALF_LAW: MIOPEN,
    MIOPEN_FP32_LAW: MIOPEN,
    MIOPEN_GROUPED_LAW: MIOPEN_GROUPED,
    "gemm fp32": GEMM_FP32,
    "conv fp32": CONV_FP32,
    "prefill": PREFILL,
    "encoder": replace(PREFILL, terms=compute_encoder_terms),
    "sequence": SEQUENCE,
    "decode": DECODE,
    "latent": LATENT,
    **dict.fromkeys(("elementwise", "copy", "embedding", "optimizer", "memset"), STREAM),
    "lookup": LOOKUP,
    "quantise": QUANTISE,
    CHUNKS_LAW: CHUNKED,
    **dict.fromkeys((STEP_LAW, CONVOLUTION_LAW, HYPER_LAW), MIXED_STREAM),
    SPARSE_LAW: SPARSE,
    INDEXER_LAW: INDEXER,
    "reduction": REDUCTION,
    "softmax": SOFTMAX,
    "norm": ROWS,
    "memcpy": Law(
        compute_memcpy_terms,
        {"floor": (2000.0, 0.5), "memory": (0.85, 0.2)},
        effects=("floor", "memory"),
        covers_op=False,
    ),
}
"""Law of each name that ``kernels.add_law`` returns."""

EXPONENTIAL_LAWS = ("prefill", "encoder", "sequence")
"""Those in which exponentials take a part of the time that matters."""
SUBSTITUTE_LAWS: dict[str, str] = {
    "conv half": "gemm half", "conv fp8": "gemm fp8", "conv fp8_block": "gemm fp8_block", "conv nvfp4": "gemm nvfp4",
    "moe fp32": "moe half", "moe w4a16": "moe half", "moe w4a8": "moe fp8", "gemm w4a16": "gemm half",
    "gemm w4a8": "gemm fp8", "conv w4a16": "gemm half", "conv w4a8": "gemm fp8",
    "copy": "elementwise", "reduction": "elementwise", "embedding": "elementwise", "lookup": "elementwise",
    "optimizer": "elementwise", "memset": "elementwise", GROUPED_LAW: "conv half", DEPTHWISE_LAW: "elementwise",
}  # fmt: skip
"""Substitute law whose constants are used where a law has no measurements."""
