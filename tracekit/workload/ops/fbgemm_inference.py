"""Compute FBGEMM's look-ups in quantised tables: rows of 2 to 32 bits per element, integers with scale and offset.

Arguments and row sizes as in ``embedding_forward_quantized_host_cpu.cpp`` and
``split_table_batched_embeddings_ops_inference.py``.
"""

from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns, TrafficFormula, build_traffic_columns
from tracekit.workload.signature import Signature

BITS_BY_ARGUMENT = {7: 2, 8: 4, 9: 8, 10: 16, 11: 32, 20: 8}
"""Position of the argument that is the widest table of a type (0: there is none) to bits of that type."""
INTEGER_ARGUMENTS = (7, 8, 9)
SCALE_BYTES = 4
TABLES, WIDTH, INDICES, OFFSETS, POOLING, OUTPUT = 5, 6, 12, 13, 14, 16
NO_POOLING = 2
OUTPUT_BYTES: dict[int | None, int] = {0: 4, 1: 2, 2: 1, 5: 2}
"""Bytes of fp32, fp16, int8, bf16, as FBGEMM numbers them."""


def _compute_lookup(signature: Signature, item_bytes: int) -> Columns | None:
    """Compute a row per index, summed per bag, with a bag for each table and sample.

    Tables are assumed to be as wide as their average. For tables of several types, the narrowest and the widest type
    are the bounds, and the mean of their row sizes is assumed.
    """
    tables, indices, offsets = (signature.get_tensors(index) for index in (TABLES, INDICES, OFFSETS))
    width = signature.get_value(WIDTH)
    if not tables or not indices or not offsets or not isinstance(width, int) or tables[0].numel < 2:
        return None
    count, rows = tables[0].numel - 1, indices[0].numel
    mean = width / count
    sizes = [_compute_row_bytes(index, mean) for index in BITS_BY_ARGUMENT if signature.get_value(index)]
    if not sizes:
        return None
    pooled = signature.get_value(POOLING) != NO_POOLING
    written = (offsets[0].numel - 1) // count * width if pooled else rows * mean
    fixed = written * OUTPUT_BYTES.get(signature.get_integer(OUTPUT), 2)
    fixed += indices[0].compute_bytes(INDEX_BYTES) + offsets[0].compute_bytes(INDEX_BYTES)
    bytes_ = fixed + rows * sum(sizes) / len(sizes)
    columns = build_traffic_columns((rows, round(mean)), flops=round(2 * rows * mean), bytes_=round(bytes_))
    if len(sizes) == 1:
        return columns
    least, most = ((fixed + rows * size) / bytes_ for size in (min(sizes), max(sizes)))
    return columns | {"work_low": least, "work_high": most}


def _compute_row_bytes(index: int, width: float) -> float:
    return width * BITS_BY_ARGUMENT[index] / 8 + (SCALE_BYTES if index in INTEGER_ARGUMENTS else 0)


TRAFFIC: dict[str, TrafficFormula] = {"fbgemm::int_nbit_split_embedding_codegen_lookup_function": _compute_lookup}
