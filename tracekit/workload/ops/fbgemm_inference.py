"""Compute FBGEMM's look-ups in quantised tables: rows of 2 to 32 bits per element, integers with scale and offset.

Arguments and row sizes as in ``embedding_forward_quantized_host_cpu.cpp`` and
``split_table_batched_embeddings_ops_inference.py``.
"""

from dataclasses import replace

from tracekit.models.lookups import IndexPattern
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns
from tracekit.workload.ops.table_lookups import Placement, TableLookup, compute_fbgemm_lookup, sum_traffic
from tracekit.workload.signature import Signature

OP = "fbgemm::int_nbit_split_embedding_codegen_lookup_function"
ON_GPU, MANAGED = 0, 1

BITS_BY_ARGUMENT = {7: 2, 8: 4, 9: 8, 10: 16, 11: 32, 20: 8}
"""Position of the argument that is the widest table of a type (0: there is none) to bits of that type."""
INTEGER_ARGUMENTS = (7, 8, 9)
SCALE_BYTES = 4
TABLES, WIDTH, INDICES, OFFSETS, POOLING, OUTPUT = 5, 6, 12, 13, 14, 16
NO_POOLING = 2
OUTPUT_BYTES: dict[int | None, int] = {0: 4, 1: 2, 2: 1, 5: 2}
"""Bytes of fp32, fp16, int8, bf16, as FBGEMM numbers them."""


def compute_quantised_lookup(signature: Signature, pattern: IndexPattern | None = None) -> Columns | None:
    """Compute a row per index, summed per bag, with a bag for each table and sample; None for any other op.

    Tables are assumed to be as wide and long as their average. For tables of several types, the narrowest and the
    widest type are the bounds, and the mean of their row sizes is assumed.

    Args:
        signature: Of the op.
        pattern: How the indices are distributed; None if nobody knows.
    """
    if signature.op != OP:
        return None
    tables, indices, offsets = (signature.get_tensors(index) for index in (TABLES, INDICES, OFFSETS))
    width = signature.get_value(WIDTH)
    if not tables or not indices or not offsets or not isinstance(width, int) or tables[0].numel < 2:
        return None
    count = tables[0].numel - 1
    sizes = [_compute_row_bytes(index, width / count) for index in BITS_BY_ARGUMENT if signature.get_value(index)]
    if not sizes:
        return None
    drawn, bags = indices[0].numel / count, (offsets[0].numel - 1) / count
    pooled = signature.get_value(POOLING) != NO_POOLING
    held, placement = _find_weights(signature)
    size = sum(sizes) / len(sizes)
    lookup = TableLookup(
        rows=int(held / (size * count)) or max(round(drawn), 1),
        width=width / count,
        indices=drawn,
        bags=bags if pooled else drawn,
        weight_bytes=size * count / width,
        pattern=pattern,
        placement=placement,
        tables=count,
        index_bytes=indices[0].get_item_bytes(INDEX_BYTES),
    )
    output_bytes = OUTPUT_BYTES.get(signature.get_integer(OUTPUT), 2)
    columns = compute_fbgemm_lookup([lookup], output_bytes)
    if len(sizes) == 1:
        return columns
    least, most = (_scale_rows(columns, lookup, end / size, output_bytes) for end in (min(sizes), max(sizes)))
    low, high = float(columns.get("work_low") or 1.0), float(columns.get("work_high") or 1.0)
    return columns | {"work_low": min(low, least), "work_high": max(high, most)}


def _scale_rows(columns: Columns, lookup: TableLookup, factor: float, output_bytes: float) -> float:
    """Return the bytes moved with rows of another size, over those of ``columns``."""
    scaled = compute_fbgemm_lookup([replace(lookup, weight_bytes=lookup.weight_bytes * factor)], output_bytes)
    return sum_traffic(scaled) / sum_traffic(columns)


def _find_weights(signature: Signature) -> tuple[int, Placement]:
    """Return the bytes of all tables, and where they lie; 0 where the trace doesn't tell."""
    on_gpu, managed = (tensor.numel if (tensor := signature.get_tensor(i)) else 0 for i in (ON_GPU, MANAGED))
    return (managed, Placement.MANAGED) if managed > on_gpu else (on_gpu, Placement.DEVICE)


def _compute_row_bytes(index: int, width: float) -> float:
    return width * BITS_BY_ARGUMENT[index] / 8 + (SCALE_BYTES if index in INTEGER_ARGUMENTS else 0)
