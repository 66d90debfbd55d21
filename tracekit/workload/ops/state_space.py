"""State-space layers of mamba_ssm, vLLM and SGLang: Mamba's scan, Mamba-2's chunks, and the convolution before both.

Mamba-2 cuts a sequence into chunks and runs GEMMs inside and between them (``ssd_combined.py`` and the files beside
it), a kernel each: scores of the tokens of a chunk, its state, its output, and their gradients. A chunk's output and
what is derived from it stop at the diagonal. Chunks of a sequence that is no multiple of them are equally long here.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from tracekit.workload.ops.vector import Columns, columns_of
from tracekit.workload.signature import Signature, Tensor

OPS = re.compile(
    r"^(?:MambaSplitConv1dScanCombinedFn|MambaChunkScanCombinedFn|MambaInnerFn|SelectiveScanFn|"
    r"CausalConv1dFn)(?:Backward)?$|^(?:_C|sgl_kernel)::(?:selective_scan_fwd|causal_conv1d_fwd)$|^DaoAILab::_causal_conv1d"
)
SCAN_FLOPS = 9
"""For each element and state: the decay, the input's part, the recurrence, the output."""
BACKWARD_SCANS = 3
"""The states once more, and the gradients of both factors."""
FULL = 4
"""Bytes of what is kept in fp32: steps, scores, states."""


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Sizes of one call of Mamba-2, and its tensors in bytes.

    Attributes:
        chunks: Of all sequences.
        rows: Tokens in each.
        heads: Heads.
        width: Of a head.
        groups: Groups of heads that share their scores.
        state: How deep the state of a head's element is.
        item: Bytes of an element of the input.
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
        """Input, output or a gradient of them."""
        return self.chunks * self.rows * self.heads * self.width * self.item

    @property
    def factor(self) -> int:
        """B or C."""
        return self.chunks * self.rows * self.groups * self.state * self.item

    @property
    def scores(self) -> int:
        """Of all pairs of tokens of a chunk."""
        return self.chunks * self.groups * self.rows**2 * FULL

    @property
    def steps(self) -> int:
        """A number for each token and head."""
        return self.chunks * self.rows * self.heads * FULL

    @property
    def states(self) -> int:
        """At the end of each chunk, in fp32."""
        return self.chunks * self.heads * self.width * self.state * FULL

    def states_as(self, item: int) -> int:
        """The same in another type."""
        return self.states // FULL * item

    def factor_as(self, item: int) -> int:
        """B or C in another type."""
        return self.factor // self.item * item

    def product(self, batch: int, m: int, n: int, k: int, bytes_: int) -> Columns:
        """A GEMM for each chunk and head, or group."""
        return {"batch": self.chunks * batch, "m": m, "n": n, "k": k, "bytes": bytes_}

    def passed(self, bytes_: int) -> Columns:
        """A pass over the tokens."""
        return columns_of((self.chunks * self.rows, self.heads * self.width), flops=bytes_ // self.item, bytes_=bytes_)


_Part = Callable[[_Chunks], Columns]


def _output(c: _Chunks) -> Columns:
    moved = c.scores + 2 * c.x + 2 * c.steps + c.factor + c.states_as(c.item) + (2 * c.x if c.gated else 0)
    return c.product(c.heads, c.rows, c.width, c.state + c.rows // 2, moved)


def _input_gradient(c: _Chunks) -> Columns:
    moved = c.scores + 3 * c.x + 3 * c.steps + c.factor + c.states_as(c.item)
    return c.product(c.heads, c.rows, c.width, c.state + c.rows // 2, moved)


def _factor_gradient(c: _Chunks) -> Columns:
    moved = c.x + 2 * c.steps + c.states_as(c.item) + c.factor + c.factor_as(FULL)
    return c.product(c.heads, c.rows, c.state, c.width, moved)


def _pairs(c: _Chunks) -> Columns:
    return c.product(c.heads, c.rows, c.rows // 2, c.width, 2 * c.x + 2 * c.steps + c.scores)


PARTS: tuple[tuple[re.Pattern[str], _Part], ...] = (
    (re.compile(r"_bmm_chunk_fwd"), lambda c: c.product(c.groups, c.rows, c.rows, c.state, 2 * c.factor + c.scores)),
    (
        re.compile(r"_bmm_chunk_bwd"),
        lambda c: c.product(c.groups, c.rows, c.state, c.rows, 2 * c.factor + c.factor_as(FULL) + c.scores),
    ),
    (re.compile(r"_chunk_scan_chunk_state_bwd_dx"), _input_gradient),
    (
        re.compile(r"_chunk_state_fwd|_chunk_scan_bwd_dstates"),
        lambda c: c.product(c.heads, c.width, c.state, c.rows, c.factor + c.x + 2 * c.steps + c.states),
    ),
    (re.compile(r"_chunk_scan_fwd"), _output),
    (re.compile(r"_chunk_scan_bwd_dc_|_chunk_state_bwd_db"), _factor_gradient),
    (re.compile(r"_chunk_scan_bwd_(?:dcb|ddAcs_stable)"), _pairs),
    (re.compile(r"_chunk_scan_bwd_dz"), lambda c: c.passed(6 * c.x)),
    (re.compile(r"_state_passing_fwd"), lambda c: c.passed(c.states + c.states_as(c.item))),
    (re.compile(r"_state_passing_bwd"), lambda c: c.passed(2 * c.states + 2 * c.states_as(c.item))),
    (re.compile(r"_chunk_cumsum_fwd"), lambda c: c.passed(2 * c.steps + c.steps // FULL * c.item)),
    (re.compile(r"_chunk_cumsum_bwd"), lambda c: c.passed(2 * c.steps + 2 * c.steps // FULL * c.item)),
    (re.compile(r"_layer_norm_fwd"), lambda c: c.passed(3 * c.x)),
    (re.compile(r"_layer_norm_bwd"), lambda c: c.passed(5 * c.x)),
)  # fmt: skip
"""Kernels of Mamba-2; norms are those behind the scan, with its gate. The first that fits counts."""
CONVOLUTION = re.compile(r"causal_conv1d_(?:channellast_)?(fwd|bwd)")
SCAN = re.compile(r"selective_scan_(fwd|bwd)_kernel")


def work(signature: Signature, kernel: str, item_bytes: int) -> Columns | None:
    """What one kernel of such an op does; ``None`` where that isn't known.

    Args:
        signature: The op; of a backward pass with the inputs of its forward call.
        kernel: The kernel's name.
        item_bytes: Bytes per element where the signature names no type.
    """
    function = signature.op.removesuffix("Backward")
    convolution, scan = CONVOLUTION.search(kernel), SCAN.search(kernel)
    if convolution:
        return _convolution(signature, function, convolution.group(1) == "bwd", item_bytes)
    if scan:
        return _scan(signature, function, scan.group(1) == "bwd", item_bytes)
    part = next((part for pattern, part in PARTS if pattern.search(kernel)), None)
    chunks = None if part is None else _chunks(signature, function, item_bytes)
    return None if part is None or chunks is None else part(chunks)


def _convolution(signature: Signature, function: str, backward: bool, item_bytes: int) -> Columns | None:
    """Input [batch, channels, tokens] or, of Mamba-2, with more beside the channels; weight [channels, (1,) taps]."""
    x, weight = signature.tensor(0), signature.tensor(1)
    if x is None or weight is None or len(weight.shape) < 2 or len(x.shape) < 2:
        return None
    channels, taps = weight.shape[0], weight.shape[-1]
    tokens_at = {"MambaSplitConv1dScanCombinedFn": 1}.get(function, -1)
    numel = channels * x.shape[tokens_at] * (x.shape[0] if len(x.shape) == 3 else 1)
    item = x.item_bytes(item_bytes)
    passes = 3 if backward else 2
    return columns_of(
        (channels, numel // channels), flops=2 * taps * numel * (passes - 1), bytes_=passes * numel * item
    )


def _scan(signature: Signature, function: str, backward: bool, item_bytes: int) -> Columns | None:
    """Input [batch, channels, tokens], of ``MambaInnerFn`` with its gate beside it; [channels, states] of decays."""
    inner = function == "MambaInnerFn"
    x, decays = signature.tensor(0), signature.tensor(7 if inner else 2)
    if x is None or decays is None or len(decays.shape) != 2:
        return None
    channels, states = decays.shape
    numel = x.numel // 2 if inner else x.numel
    item = x.item_bytes(item_bytes)
    gated = inner or bool(signature.shape(6))
    factors = numel // max(channels, 1) * states * 2
    elements = (5 if backward else 3) + ((3 if backward else 2) if gated else 0)
    moved = elements * numel * item + factors * item + (factors * FULL if backward else 0)
    flops = SCAN_FLOPS * numel * states * (BACKWARD_SCANS if backward else 1)
    return columns_of((channels, numel // max(channels, 1)), flops=flops, bytes_=moved)


def _chunks(signature: Signature, function: str, item_bytes: int) -> _Chunks | None:
    x = signature.tensor(0)
    if x is None:
        return None
    if function == "MambaChunkScanCombinedFn":
        factor, chunk = signature.shape(3), signature.value(5)
        sizes = (*x.shape[2:], *factor[2:]) if factor and len(x.shape) == len(factor) == 4 else None
        gated = bool(signature.shape(7))
    else:
        sizes, chunk, gated = _of_projection(signature, x), signature.value(6), not signature.shape(12)
    if sizes is None or not isinstance(chunk, int) or chunk < 1:
        return None
    batch, tokens = x.shape[:2]
    count = math.ceil(tokens / chunk)
    heads, width, groups, state = sizes
    return _Chunks(
        chunks=batch * count,
        rows=math.ceil(tokens / max(count, 1)),
        heads=heads,
        width=width,
        groups=groups,
        state=state,
        item=x.item_bytes(item_bytes),
        gated=gated,
    )


def _of_projection(signature: Signature, x: Tensor) -> tuple[int, int, int, int] | None:
    """Heads, their width, groups and state of a whole layer, from its convolution's channels and values beside it."""
    weight, decays, groups = signature.shape(1), signature.shape(4), signature.value(17)
    last = signature.shape(5) or ()
    width = last[1] if len(last) == 2 else signature.value(16)
    if len(x.shape) != 3 or not weight or not decays or not isinstance(width, int) or not isinstance(groups, int):
        return None
    heads = decays[0]
    factors = weight[0] - heads * width
    return (heads, width, groups, factors // (2 * groups)) if groups > 0 and factors > 0 else None
