"""Compute state-space layers of mamba_ssm, vLLM, SGLang: Mamba's scan, Mamba-2's chunks, the convolution before both.

Mamba-2 cuts a sequence into chunks and runs GEMMs inside and between them (``ssd_combined.py`` and the files beside
it), one kernel each: scores of the tokens of a chunk, its state, its output, and their gradients. The output of a chunk
and what is derived from it are causal, so only half of the pairs count. The last chunk is not shorter here: all chunks
of a sequence are assumed to be equally long.

    tokens   |-- chunk 1 --|-- chunk 2 --|-- chunk 3 --|
    inside   scores, output  scores, output  ...
    between  state 1 ------> state 2 ------> state 3
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from predictors import linear_attention
from tracekit.workload.ops.memory_traffic import Columns, build_traffic_columns
from tracekit.workload.signature import Signature, Tensor

STATE_SPACE_OPS = re.compile(
    r"^(?:MambaSplitConv1dScanCombinedFn|MambaChunkScanCombinedFn|MambaInnerFn|SelectiveScanFn|"
    r"CausalConv1dFn)(?:Backward)?$|^tracekit::(?:short_convolution|delta_rule)$|^(?:_C|sgl_kernel)::(?:selective_scan_fwd|causal_conv1d_fwd)$|^DaoAILab::_causal_conv1d"
)
SCAN_FLOPS_PER_STATE = 9
"""FLOPs per element and state: the decay, the input's part, the recurrence, the output."""
BACKWARD_SCANS = 3
"""Scans of a backward pass: the states once more, and the gradients of both factors."""
FP32_BYTES = 4
"""Bytes of what is stored in fp32: steps, scores, states."""


@dataclass(frozen=True, slots=True)
class _Mamba2Chunks:
    """Sizes of one call of Mamba-2, and its tensors in bytes.

    Attributes:
        chunks: Chunks of all sequences.
        rows: Tokens in each chunk.
        groups: Groups of heads with the same scores.
        state: Size of the state of one element of a head.
        item: Bytes per element of the input.
        gated: Whether the output's gate is part of the scan.
    """

    chunks: int
    rows: int
    heads: int
    width: int
    groups: int
    state: int
    item: int
    gated: bool

    @property
    def x(self) -> int:
        """Bytes of input, output or a gradient of them."""
        return self.chunks * self.rows * self.heads * self.width * self.item

    @property
    def factor(self) -> int:
        """Bytes of B or C."""
        return self.chunks * self.rows * self.groups * self.state * self.item

    @property
    def scores(self) -> int:
        """Bytes of the scores of all pairs of tokens of a chunk."""
        return self.chunks * self.groups * self.rows**2 * FP32_BYTES

    @property
    def steps(self) -> int:
        """Bytes of one number per token and head."""
        return self.chunks * self.rows * self.heads * FP32_BYTES

    @property
    def states(self) -> int:
        """Bytes of the fp32 state at the end of each chunk."""
        return self.chunks * self.heads * self.width * self.state * FP32_BYTES

    def states_as(self, item: int) -> int:
        """Compute the bytes of the states in a type of ``item`` bytes."""
        return self.states // FP32_BYTES * item

    def factor_as(self, item: int) -> int:
        """Compute the bytes of B or C in a type of ``item`` bytes."""
        return self.factor // self.item * item

    def build_gemm(self, batch: int, m: int, n: int, k: int, bytes_: int) -> Columns:
        """Build a GEMM per chunk and head, or per chunk and group."""
        return {"batch": self.chunks * batch, "m": m, "n": n, "k": k, "bytes": bytes_}

    def build_pass(self, bytes_: int) -> Columns:
        """Build a pass over the tokens."""
        return build_traffic_columns(
            (self.chunks * self.rows, self.heads * self.width), flops=bytes_ // self.item, bytes_=bytes_
        )


_PartFormula = Callable[[_Mamba2Chunks], Columns]


def _compute_output(c: _Mamba2Chunks) -> Columns:
    moved = c.scores + 2 * c.x + 2 * c.steps + c.factor + c.states_as(c.item) + (2 * c.x if c.gated else 0)
    return c.build_gemm(c.heads, c.rows, c.width, c.state + c.rows // 2, moved)


def _compute_input_gradient(c: _Mamba2Chunks) -> Columns:
    moved = c.scores + 3 * c.x + 3 * c.steps + c.factor + c.states_as(c.item)
    return c.build_gemm(c.heads, c.rows, c.width, c.state + c.rows // 2, moved)


def _compute_factor_gradient(c: _Mamba2Chunks) -> Columns:
    moved = c.x + 2 * c.steps + c.states_as(c.item) + c.factor + c.factor_as(FP32_BYTES)
    return c.build_gemm(c.heads, c.rows, c.state, c.width, moved)


def _compute_pairs(c: _Mamba2Chunks) -> Columns:
    return c.build_gemm(c.heads, c.rows, c.rows // 2, c.width, 2 * c.x + 2 * c.steps + c.scores)


MAMBA2_KERNELS: tuple[tuple[re.Pattern[str], _PartFormula], ...] = (
    (re.compile(r"_bmm_chunk_fwd"), lambda c: c.build_gemm(c.groups, c.rows, c.rows, c.state, 2 * c.factor + c.scores)),
    (
        re.compile(r"_bmm_chunk_bwd"),
        lambda c: c.build_gemm(c.groups, c.rows, c.state, c.rows, 2 * c.factor + c.factor_as(FP32_BYTES) + c.scores),
    ),
    (re.compile(r"_chunk_scan_chunk_state_bwd_dx"), _compute_input_gradient),
    (
        re.compile(r"_chunk_state_fwd|_chunk_scan_bwd_dstates"),
        lambda c: c.build_gemm(c.heads, c.width, c.state, c.rows, c.factor + c.x + 2 * c.steps + c.states),
    ),
    (re.compile(r"_chunk_scan_fwd"), _compute_output),
    (re.compile(r"_chunk_scan_bwd_dc_|_chunk_state_bwd_db"), _compute_factor_gradient),
    (re.compile(r"_chunk_scan_bwd_(?:dcb|ddAcs_stable)"), _compute_pairs),
    (re.compile(r"_chunk_scan_bwd_dz"), lambda c: c.build_pass(6 * c.x)),
    (re.compile(r"_state_passing_fwd"), lambda c: c.build_pass(c.states + c.states_as(c.item))),
    (re.compile(r"_state_passing_bwd"), lambda c: c.build_pass(2 * c.states + 2 * c.states_as(c.item))),
    (re.compile(r"_chunk_cumsum_fwd"), lambda c: c.build_pass(2 * c.steps + c.steps // FP32_BYTES * c.item)),
    (re.compile(r"_chunk_cumsum_bwd"), lambda c: c.build_pass(2 * c.steps + 2 * c.steps // FP32_BYTES * c.item)),
    (re.compile(r"_layer_norm_fwd"), lambda c: c.build_pass(3 * c.x)),
    (re.compile(r"_layer_norm_bwd"), lambda c: c.build_pass(5 * c.x)),
)  # fmt: skip
"""Kernels of Mamba-2; norms are those after the scan, with its gate. The first pattern that matches counts."""
CONVOLUTION_KERNEL = re.compile(r"causal_conv1d_(?:channellast_)?(fwd|bwd)")
SCAN_KERNEL = re.compile(r"selective_scan_(fwd|bwd)_kernel")


def compute_state_space_work(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """Compute the work of one kernel of a state-space op; ``None`` if it isn't known.

    A backward pass has the inputs of its forward call; ``item_bytes`` count where the signature has no type.
    """
    if signature.op in ENGINE_OPS:
        return ENGINE_OPS[signature.op](signature)
    function = signature.op.removesuffix("Backward")
    convolution, scan = CONVOLUTION_KERNEL.search(kernel), SCAN_KERNEL.search(kernel)
    if convolution:
        return _compute_convolution(signature, function, convolution.group(1) == "bwd", item_bytes)
    if scan:
        return _compute_scan(signature, function, scan.group(1) == "bwd", item_bytes)
    part = next((part for pattern, part in MAMBA2_KERNELS if pattern.search(kernel)), None)
    chunks = None if part is None else _parse_chunks(signature, function, item_bytes)
    return None if part is None or chunks is None else part(chunks)


def _compute_short_convolution(signature: Signature) -> Columns | None:
    """Compute a captured engine's convolution of input [sequences, tokens, channels] and weight [channels, taps]."""
    x, weight = signature.get_shape(0), signature.get_shape(1)
    if not x or not weight or len(x) != 3 or len(weight) != 2:
        return None
    (sequences, each, channels), tokens = x, x[0] * x[1]
    moved = linear_attention.count_convolution_bytes(tokens, sequences, channels, weight[1])
    return {
        "part": linear_attention.CONVOLUTION, "batch": sequences, "q_len": each, "rows": tokens, "cols": channels,
        "flops": 2 * tokens * channels * weight[1], "bytes": int(moved),
    }  # fmt: skip


def _compute_delta_rule(signature: Signature) -> Columns | None:
    """Compute a captured engine's delta rule of keys and values, each [sequences, tokens, heads, width]."""
    keys, values = signature.get_shape(0), signature.get_shape(1)
    if not keys or not values or len(keys) != 4 or len(values) != 4:
        return None
    (sequences, each, key_heads, key_width), (heads, width) = keys, values[2:]
    shape = heads, key_heads, key_width, width
    return {
        "part": linear_attention.STEP if each == 1 else linear_attention.CHUNKS,
        "batch": sequences, "q_len": each, "heads": heads, "kv_heads": key_heads, "head_dim": width, "cols": key_width,
        "rows": sequences * each, "flops": int(linear_attention.count_scan_flops(sequences * each, *shape)),
        "bytes": int(linear_attention.count_scan_bytes(sequences * each, sequences, *shape)),
    }  # fmt: skip


ENGINE_OPS: dict[str, Callable[[Signature], Columns | None]] = {
    "tracekit::short_convolution": _compute_short_convolution,
    "tracekit::delta_rule": _compute_delta_rule,
}
"""Ops of engines' steps (``tracekit.served``), whose kernels have laws of their own."""


def _compute_convolution(signature: Signature, function: str, backward: bool, item_bytes: int) -> Columns | None:
    """Compute the convolution of input [batch, channels, tokens] and weight [channels, (1,) taps].

    In Mamba-2 the input has more beside the channels.
    """
    x, weight = signature.get_tensor(0), signature.get_tensor(1)
    if x is None or weight is None or len(weight.shape) < 2 or len(x.shape) < 2:
        return None
    channels, taps = weight.shape[0], weight.shape[-1]
    tokens_at = {"MambaSplitConv1dScanCombinedFn": 1}.get(function, -1)
    numel = channels * x.shape[tokens_at] * (x.shape[0] if len(x.shape) == 3 else 1)
    item = x.get_item_bytes(item_bytes)
    passes = 3 if backward else 2
    return build_traffic_columns(
        (channels, numel // channels), flops=2 * taps * numel * (passes - 1), bytes_=passes * numel * item
    )


def _compute_scan(signature: Signature, function: str, backward: bool, item_bytes: int) -> Columns | None:
    """Compute the scan of input [batch, channels, tokens] and decays [channels, states].

    The input of ``MambaInnerFn`` includes its gate.
    """
    inner = function == "MambaInnerFn"
    x, decays = signature.get_tensor(0), signature.get_tensor(7 if inner else 2)
    if x is None or decays is None or len(decays.shape) != 2:
        return None
    channels, states = decays.shape
    numel = x.numel // 2 if inner else x.numel
    item = x.get_item_bytes(item_bytes)
    gated = inner or bool(signature.get_shape(6))
    factors = numel // max(channels, 1) * states * 2
    elements = (5 if backward else 3) + ((3 if backward else 2) if gated else 0)
    moved = elements * numel * item + factors * item + (factors * FP32_BYTES if backward else 0)
    flops = SCAN_FLOPS_PER_STATE * numel * states * (BACKWARD_SCANS if backward else 1)
    return build_traffic_columns((channels, numel // max(channels, 1)), flops=flops, bytes_=moved)


def _parse_chunks(signature: Signature, function: str, item_bytes: int) -> _Mamba2Chunks | None:
    x = signature.get_tensor(0)
    if x is None:
        return None
    if function == "MambaChunkScanCombinedFn":
        factor, chunk = signature.get_shape(3), signature.get_value(5)
        sizes = (*x.shape[2:], *factor[2:]) if factor and len(x.shape) == len(factor) == 4 else None
        gated = bool(signature.get_shape(7))
    else:
        sizes, chunk, gated = _infer_layer_sizes(signature, x), signature.get_value(6), not signature.get_shape(12)
    if sizes is None or not isinstance(chunk, int) or chunk < 1:
        return None
    batch, tokens = x.shape[:2]
    count = math.ceil(tokens / chunk)
    heads, width, groups, state = sizes
    return _Mamba2Chunks(
        chunks=batch * count,
        rows=math.ceil(tokens / max(count, 1)),
        heads=heads,
        width=width,
        groups=groups,
        state=state,
        item=x.get_item_bytes(item_bytes),
        gated=gated,
    )


def _infer_layer_sizes(signature: Signature, x: Tensor) -> tuple[int, int, int, int] | None:
    """Infer heads, width, groups and state of a whole layer from its convolution's channels and further inputs."""
    weight, decays, groups = signature.get_shape(1), signature.get_shape(4), signature.get_value(17)
    last = signature.get_shape(5) or ()
    width = last[1] if len(last) == 2 else signature.get_value(16)
    if len(x.shape) != 3 or not weight or not decays or not isinstance(width, int) or not isinstance(groups, int):
        return None
    heads = decays[0]
    factors = weight[0] - heads * width
    return (heads, width, groups, factors // (2 * groups)) if groups > 0 and factors > 0 else None
