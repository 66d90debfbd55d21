"""Encode Chakra's nodes as protobuf."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from tracekit.errors import OutputError
from tracekit.export.chakra.communication import ProcessGroup
from tracekit.ingest.formats.chakra_schema import COLLECTIVES, VERSION, NodeType, load_messages
from tracekit.messages.requests import CHAKRA_NEEDS_PACKAGE
from tracekit.version import __version__

PEER_COLLECTIVE = "send_recv"
KERNEL_COLUMNS = (
    "kind", "op", "step", "device", "stream", "bytes", "input_dims", "input_types", "collective", "ranks",
    "process_group", "group_ranks", "sender", "receiver",
)  # fmt: skip
MESSAGE_TAG = 0
"""Messages between two ranks keep their order."""
Groups = Mapping[tuple[str, str], ProcessGroup]


def encode_nodes(nodes: pl.DataFrame, kernels: pl.DataFrame, sizes: pl.Series, groups: Groups) -> bytes:
    """Encode the nodes of one rank as a file.

    Args:
        nodes: Of :func:`~tracekit.export.chakra.select.build_node_table`.
        kernels: The kernel table.
        sizes: Of each kernel, by :func:`~tracekit.export.chakra.communication.compute_comm_sizes`.
        groups: Of :func:`~tracekit.export.chakra.communication.number_groups`.

    Raises:
        OutputError: The package ``protobuf`` isn't installed.
    """
    try:
        messages = load_messages()
    except ImportError:
        raise OutputError(CHAKRA_NEEDS_PACKAGE()) from None
    facts = (
        kernels.select(*KERNEL_COLUMNS, comm_size=sizes)
        .with_row_index("activity")
        .with_columns(pl.col("activity").cast(pl.Int64))
    )
    rows = nodes.join(facts, on="activity", how="left", maintain_order="left")
    head = messages["GlobalMetadata"](version=VERSION)
    head.attr.add(name="tracekit", string_val=__version__)
    encoded = (_encode_node(messages["Node"](), row, groups) for row in rows.iter_rows(named=True))
    return b"".join(_delimit(text) for text in (head.SerializeToString(), *encoded))


def _encode_node(node: Any, row: dict[str, Any], groups: Groups) -> bytes:
    node.id, node.name, node.type = row["id"], row["name"], NodeType.COMP
    node.start_time_micros, node.duration_micros = max(row["start_us"], 0), row["dur_us"]
    node.data_deps.extend(row["deps"])
    if row["activity"] is None:
        node.attr.add(name="is_cpu_op", bool_val=True)
        return bytes(node.SerializeToString(deterministic=True))
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.type, attributes = _describe_communication(row, groups)
    for name, value in (*attributes, *_describe_kernel(row)):
        if isinstance(value, list):
            node.attr.add(name=name).int64_list.values.extend(value)
        elif value is not None:
            node.attr.add(name=name, **{"string_val" if isinstance(value, str) else "int64_val": value})
    node.inputs.shapes, node.inputs.types = row["input_dims"] or "", row["input_types"] or ""
    return bytes(node.SerializeToString(deterministic=True))


def _describe_kernel(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, row[name]) for name in ("op", "step", "device", "stream"))
    # A copy is computation to Chakra, whose loads and stores go to a memory that machines share.
    yield "tensor_size", row["bytes"] if row["kind"] != "kernel" else None


def _describe_communication(row: dict[str, Any], groups: Groups) -> tuple[NodeType, list[tuple[str, Any]]]:
    """Return the type of a node and what a simulator needs to send it again; without a size it only takes its time."""
    collective, size = row["collective"], row["comm_size"]
    known = groups.get((row["process_group"], row["group_ranks"]))
    group = [("pg_name", known.number if known else row["process_group"]), ("pg_ranks", known.ranks if known else None)]
    sized, message = [("comm_size", size), *group], [("comm_tag", MESSAGE_TAG), ("comm_size", size), *group]
    if collective is None or size is None:
        return NodeType.COMP, group if collective else []
    if collective in COLLECTIVES:
        return NodeType.COMM_COLL, [("comm_type", COLLECTIVES.index(collective)), *sized]
    # Of two ranks that exchange messages in one kernel, both name the lower as the sender.
    if collective == PEER_COLLECTIVE and row["receiver"] not in (None, row["rank"]):
        return NodeType.COMM_SEND, [("comm_dst", row["receiver"]), *message]
    if collective == PEER_COLLECTIVE and row["sender"] not in (None, row["rank"]):
        return NodeType.COMM_RECV, [("comm_src", row["sender"]), *message]
    return NodeType.COMP, sized


def _delimit(message: bytes) -> bytes:
    """Put the length in front, as a varint."""
    size, prefix = len(message), bytearray()
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(prefix) + bytes([size]) + message
