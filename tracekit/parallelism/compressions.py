"""Ways to compress gradients for their exchange: what is sent, and what compressing them costs.

==============  ==========  =============================  =======================================================
name            exchange    sent of n values               after
==============  ==========  =============================  =======================================================
fp16, bf16      all-reduce  2 n bytes                      torch's default_hooks.fp16_compress_hook
int8            all-gather  n bytes by each rank           torch's quantization_hooks.quantization_pertensor_hook
powersgd:R      all-reduce  4 R (rows + columns) bytes     torch's powerSGD_hook.powerSGD_hook, in its steady state
topk:F          all-gather  8 F n bytes by each rank       Lin et al., Deep Gradient Compression, ICLR 2018
==============  ==========  =============================  =======================================================

An all-gather brings each rank what all others send, so its bytes grow with the ranks.
"""

import re
from dataclasses import dataclass

import polars as pl

from tracekit.messages import Message, Value
from tracekit.messages import layouts as told

CAST_TYPES = ("fp16", "bf16")
COMPRESSION_PATTERN = re.compile(
    r"(?P<name>fp16|bf16|int8|powersgd|topk)(?::(?P<value>[0-9]{1,4}|0?\.[0-9]{1,6}))?", re.IGNORECASE
)
DEFAULT_RANK, DEFAULT_KEPT_FRACTION = 1, 0.01
"""Rank of PowerSGD as in torch (matrix_approximation_rank), and the part of the values that top-k sends."""
MAX_RANK = 256
LEAST_GAIN = 2
"""Factor by which PowerSGD has to shorten a matrix, else it is sent whole (torch, min_compression_rate)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionCosts:
    """What one way costs, counted in the sources above; PowerSGD's of one shape of matrices.

    Attributes:
        launches: Kernels before a bucket's exchange.
        launches_behind: Kernels behind it.
        launches_by_rank: The same for each rank that takes part.
        bytes_before: Bytes read and written for each value before the exchange.
        bytes_behind: The same behind it.
        bytes_by_rank: The same for each value that a rank sent.
        held_fraction: What a rank holds for it, relative to its gradients: a compressed copy, or an error of each
            value.
    """

    launches: int
    launches_behind: int = 0
    launches_by_rank: int = 0
    bytes_before: int
    bytes_behind: int = 0
    bytes_by_rank: int = 0
    held_fraction: float


# A cast reads 4 and writes 2, the division in place reads and writes 2. int8 reads all values for their range and once
# more to quantise them; behind, it dequantises and adds what each rank sent. PowerSGD adds the error of before and
# multiplies twice; behind, it multiplies and keeps the error. top-k adds what it held back, and selects in four passes
# over the bits; behind, it adds each rank's values into zeros.
_CAST = CompressionCosts(launches=2, launches_behind=1, bytes_before=4 + 2 + 4, bytes_behind=2 + 4, held_fraction=0.5)
_COSTS = {
    "fp16": _CAST,
    "bf16": _CAST,
    "int8": CompressionCosts(
        launches=4, launches_by_rank=2, bytes_before=4 + 4 + 1, bytes_by_rank=1 + 4 + 8 + 4, held_fraction=0.25
    ),
    "powersgd": CompressionCosts(
        launches=10, launches_behind=3, bytes_before=12 + 4 + 4, bytes_behind=4 + 12, held_fraction=1.0
    ),
    "topk": CompressionCosts(
        launches=7,
        launches_behind=1,
        launches_by_rank=1,
        bytes_before=12 + 4 * 4 + 4,
        bytes_behind=4,
        bytes_by_rank=16,
        held_fraction=1.0,
    ),
}


@dataclass(frozen=True, slots=True)
class Compression:
    """One way to compress gradients of fp32.

    Attributes:
        name: As the option has it, without its value.
        value: Rank of PowerSGD, or the part of the values that top-k sends; 0 for others.
    """

    name: str
    value: float = 0.0

    @property
    def costs(self) -> CompressionCosts:
        """What it costs."""
        return _COSTS[self.name]

    @property
    def dtype(self) -> str:
        """Type of what is sent."""
        return "fp32" if self.name in ("powersgd", "topk") else self.name

    @property
    def gathers(self) -> bool:
        """Whether each rank gets what all others send, in place of a sum."""
        return self.name in ("int8", "topk")

    def count_launches(self, ranks: int) -> int:
        """Count the kernels of a bucket's compression, those behind its exchange by so many ranks included."""
        return self.costs.launches + self.costs.launches_behind + self.costs.launches_by_rank * ranks

    def compute_decompress_bytes(self, ranks: int) -> float:
        """Compute the bytes read and written for each value behind the exchange by so many ranks."""
        part = self.value if self.name == "topk" else 1
        return self.costs.bytes_behind + self.costs.bytes_by_rank * part * ranks

    def size_gradients(self) -> pl.Expr:
        """Return the bytes that each gradient sends, from its ``numel`` and ``input_dims``."""
        numel = pl.col("numel")
        if self.name == "topk":
            return (8 * self.value * numel).ceil().cast(pl.Int64)
        if self.name != "powersgd":
            return numel * (1 if self.name == "int8" else 2)
        rows = pl.col("input_dims").str.extract(r"([0-9]+)").cast(pl.Int64).fill_null(1)
        factors = self.value * (rows + numel // rows)
        return 4 * pl.when(factors * LEAST_GAIN < numel).then(factors.cast(pl.Int64)).otherwise(numel)

    def write_note(self, whole: Message, sent_bytes: int, ranks: int) -> Message:
        """Write what it does and what isn't predicted of it, behind the note on the exchange."""
        shown: dict[str, Value] = {"whole": whole, "sent_bytes": sent_bytes}
        if self.name == "int8":
            return told.DDP_QUANTIZED(**shown, ranks=ranks)
        if self.name == "powersgd":
            return told.DDP_FACTORED(**shown, rank=int(self.value))
        if self.name == "topk":
            return told.DDP_SELECTED(**shown, kept_pct=100 * self.value, ranks=ranks)
        return told.DDP_COMPRESSED(**shown, dtype=self.name)

    def __str__(self) -> str:
        """Return the name as the option has it, such as ``powersgd:4``."""
        return f"{self.name}:{self.value:g}" if self.value else self.name


def parse_compression(text: str) -> Compression | None:
    """Parse a way to compress gradients, such as ``bf16``, ``powersgd:4`` or ``topk:0.01``; None if it is none."""
    found = COMPRESSION_PATTERN.fullmatch(text.strip())
    if not found:
        return None
    name, value = found["name"].lower(), found["value"]
    if name == "powersgd":
        rank = float(value or DEFAULT_RANK)
        return Compression(name, rank) if rank.is_integer() and 1 <= rank <= MAX_RANK else None
    if name == "topk":
        kept = float(value or DEFAULT_KEPT_FRACTION)
        return Compression(name, kept) if 0 < kept < 1 else None
    return None if value else Compression(name)
