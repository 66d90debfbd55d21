"""Encode Chakra's nodes as protobuf."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import polars as pl
from msgspec import DecodeError

from tracekit.errors import OutputError
from tracekit.graph.ranks.match import match_collectives
from tracekit.ingest.formats.chakra import COLLECTIVES, SIZED_BY_PART, VERSION, NodeType, load_messages
from tracekit.messages.requests import CHAKRA_NEEDS_PACKAGE
from tracekit.version import __version__

ALL_RANKS = "0"
MAX_NUMBER = 2_000
"""ASTRA-sim multiplies a group's number by a million, as a 32-bit integer."""


class ProcessGroup(NamedTuple):
    """A process group; ``number`` is its name in the files."""

    number: str
    ranks: list[int]


def compute_comm_sizes(kernels: pl.DataFrame) -> pl.Series:
    """Return ``comm_size`` of each kernel in bytes; null without a collective, its size or another rank."""
    size = pl.col("bytes")
    if kernels["rank"].n_unique() > 1:
        matched = match_collectives(kernels)[0].select("collective", "row").rename({"collective": "matched"})
        rows = kernels.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
        kernels = rows.join(matched, on="row", how="left", maintain_order="left")
        is_matched = pl.col("matched").is_not_null()
        size = pl.when(is_matched).then(size.max().over("matched")).otherwise(size)
    members = pl.coalesce("ranks", pl.lit(kernels["rank"].n_unique()))
    part = pl.when(pl.col("collective") == SIZED_BY_PART).then(size // members).otherwise(size)
    is_sent = pl.col("collective").is_not_null() & pl.col("ranks").ne_missing(1)
    return kernels.select(comm_size=pl.when(is_sent).then(part).cast(pl.Int64))["comm_size"]


def number_groups(kernels: pl.DataFrame) -> dict[tuple[str, str], ProcessGroup]:
    """Number the process groups by name and recorded ranks; those whose ranks aren't known are left out."""
    found = kernels.select("process_group", "group_ranks").drop_nulls().unique().sort("process_group", "group_ranks")
    listed = [(name, text, ranks) for name, text in found.iter_rows() if (ranks := _parse_ranks(text))]
    free, taken = _list_free_numbers([name for name, _, _ in listed]), set[str]()
    groups = {}
    for name, text, ranks in listed:
        number = name if _is_number(name) and name not in taken else next(free)
        taken.add(number)
        groups[name, text] = ProcessGroup(number, ranks)
    return groups


def encode_groups(groups: Iterable[ProcessGroup]) -> bytes:
    """Encode groups for ASTRA-sim's ``--comm-group-configuration``."""
    return msgspec.json.encode({group.number: group.ranks for group in groups if group.number != ALL_RANKS})


def _is_number(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name and int(name) < MAX_NUMBER


def _list_free_numbers(names: list[str]) -> Iterator[str]:
    """Yield numbers that no group has; 0 stays the group of all ranks."""
    used = {int(name) for name in names if _is_number(name)}
    return (str(number) for number in range(1, MAX_NUMBER) if number not in used)


def _parse_ranks(text: str) -> list[int] | None:
    """Return the ranks of a process group; ``None`` for a list that PyTorch shortened."""
    try:
        return msgspec.json.decode(text, type=list[int])
    except DecodeError:
        return None


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

    ``nodes`` are from :func:`~tracekit.export.chakra.select.build_node_table`, ``sizes``, one for each kernel, from
    :func:`compute_comm_sizes`, and ``groups`` from :func:`number_groups`.

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
