"""FBGEMM's look-ups in quantised tables: rows of 2 to 32 bits an element, integers with a scale and an offset.

Arguments and sizes of rows as ``embedding_forward_quantized_host_cpu.cpp`` and
``split_table_batched_embeddings_ops_inference.py`` have them.
"""

from tracekit.workload.ops.vector import INDEX_BYTES, Columns, Traffic, columns_of
from tracekit.workload.signature import Signature

BITS = {7: 2, 8: 4, 9: 8, 10: 16, 11: 32, 20: 8}
"""Argument that is the widest table of a type (0: there is none) -> bits of that type."""
INTEGERS = (7, 8, 9)
SCALE_BYTES = 4
TABLES, WIDTH, INDICES, OFFSETS, POOLING, OUTPUT = 5, 6, 12, 13, 14, 16
NO_POOLING = 2
OUTPUT_BYTES: dict[int | None, int] = {0: 4, 1: 2, 2: 1, 5: 2}
"""fp32, fp16, int8, bf16 as FBGEMM numbers them."""


def _lookup(signature: Signature, item_bytes: int) -> Columns | None:
    """A row for each index, summed per bag, a bag for each table and sample.

    Tables are as wide as they are on average; where they are of several types, from the narrowest to the widest is the
    bracket, and what is taken is their mean.
    """
    tables, indices, offsets = (signature.at(index) for index in (TABLES, INDICES, OFFSETS))
    width = signature.value(WIDTH)
    if not tables or not indices or not offsets or not isinstance(width, int) or tables[0].numel < 2:
        return None
    count, rows = tables[0].numel - 1, indices[0].numel
    mean = width / count
    sizes = [_row_bytes(index, mean) for index in BITS if signature.value(index)]
    if not sizes:
        return None
    pooled = signature.value(POOLING) != NO_POOLING
    written = (offsets[0].numel - 1) // count * width if pooled else rows * mean
    fixed = written * OUTPUT_BYTES.get(signature.whole(OUTPUT), 2)
    fixed += indices[0].size_bytes(INDEX_BYTES) + offsets[0].size_bytes(INDEX_BYTES)
    bytes_ = fixed + rows * sum(sizes) / len(sizes)
    columns = columns_of((rows, round(mean)), flops=round(2 * rows * mean), bytes_=round(bytes_))
    if len(sizes) == 1:
        return columns
    least, most = ((fixed + rows * size) / bytes_ for size in (min(sizes), max(sizes)))
    return columns | {"work_low": least, "work_high": most}


def _row_bytes(index: int, width: float) -> float:
    return width * BITS[index] / 8 + (SCALE_BYTES if index in INTEGERS else 0)


TRAFFIC: dict[str, Traffic] = {"fbgemm::int_nbit_split_embedding_codegen_lookup_function": _lookup}
