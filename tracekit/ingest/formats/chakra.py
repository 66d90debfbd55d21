"""Read MLCommons Chakra's execution traces: nodes of the GPU as activities, nodes of the CPU as calls and ops.

A file holds a ``GlobalMetadata`` and then a ``Node`` after the other, each behind its length as a varint (version
0.0.4, ``schema/protobuf/et_def.proto``), or as ``chakra_jsonizer`` prints them: a JSON object per message. Many traces
have no times. Then each node starts when its dependencies have ended and its thread or stream is free, as simulators
run them. A dependency between streams becomes a recorded wait for an event.
"""

import heapq
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

import msgspec

from tracekit.errors import DamagedTraceError, NoGpuActivityError
from tracekit.ingest.foreign import JSON_START
from tracekit.ingest.formats.protobufs import build_messages, name_failures
from tracekit.ingest.formats.tables import ForeignFile, ForeignTrace, build_table
from tracekit.messages.traces import CHAKRA_CIRCULAR, CHAKRA_WITHOUT_KERNELS, FORMAT_DAMAGED

VERSION = "0.0.4"
FORM = "execution trace of Chakra"
MARK = rb'\A\s*\{\s*"version"\s*:\s*"[^"\0]{0,20}"[^\0]{0,4096}?\}\s*\{\s*"(?:id|name)"\s*:\s*"'
"""How the jsonizer's form begins."""

HOST_WORK_NAME = "host work"
"""Name of a node for what a thread does between its calls."""
RETURN_SUFFIX = " returns"
"""Ends the name of the node for the end of a call that waits for the GPU."""

LAUNCH = "cudaLaunchKernel"
PROCESS = 1
BASE_NS = 1_000
"""Added to all times, as a time of zero counts as unknown."""
LAUNCHES_NS = 1_000
"""At the end of an op, when its kernels are taken to be launched; one after the other by a nanosecond."""
_CALL = re.compile(r"^(?:cu|cuda|hip)[A-Z]\w+$")
_COLLECTIVE_KERNEL = re.compile(r"nccl|rccl", re.IGNORECASE)
_TYPE_SUFFIX = "_NODE"
_SPACE = re.compile(r"\s*")
_MAX_INT = 2**62

_SCHEMA = {
    "Int64List": ("repeated int64 values = 1",),
    "AttributeProto": (
        "string name = 1", "double double_val = 3", "float float_val = 5", "int32 int32_val = 7", "int64 int64_val = 9",
        "Int64List int64_list = 10", "uint32 uint32_val = 11", "uint64 uint64_val = 13", "sint32 sint32_val = 15",
        "sint64 sint64_val = 17", "bool bool_val = 27", "string string_val = 29",
    ),
    "GlobalMetadata": ("string version = 1", "repeated AttributeProto attr = 2"),
    "IOInfo": ("string values = 1", "string shapes = 2", "string types = 3"),
    "Node": (
        "uint64 id = 1", "string name = 2", "int32 type = 3", "repeated uint64 ctrl_deps = 4",
        "repeated uint64 data_deps = 5", "uint64 start_time_micros = 6", "uint64 duration_micros = 7",
        "IOInfo inputs = 8", "IOInfo outputs = 9", "repeated AttributeProto attr = 10",
    ),
}  # fmt: skip


class NodeType(IntEnum):
    """What a node does; ``MEM_LOAD`` and ``MEM_STORE`` go to a memory that machines share."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


COLLECTIVES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter_block", "barrier",
)  # fmt: skip
"""Names of ``CollectiveCommType``, by number."""
SIZED_BY_PART = "all_gather"
"""Collective whose ``comm_size``, what a rank puts in, is only its part of the buffer by which tracekit sizes it."""
_TORCH_NAMES = {
    "all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base",
    "reduce_scatter_block": "_reduce_scatter_base", "broadcast": "_broadcast_oop", "reduce": "_reduce_oop",
}  # fmt: skip
"""Names that torch.distributed records, where they differ."""
_COMMUNICATION = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)


@cache
def load_messages() -> dict[str, Any]:
    """Return the message classes.

    Raises:
        ImportError: The package ``protobuf`` isn't installed.
    """
    return build_messages("ChakraProtoMsg", _SCHEMA)


def decode_messages(text: str, classes: dict[str, Any]) -> Iterator[Any]:
    """Yield the metadata and then the nodes, as the classes of the schema.

    Raises:
        DecodeError: It isn't in this form.
    """
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.message import DecodeError

    name = "GlobalMetadata"
    try:
        for found in _decode_objects(text):
            message = ParseDict(_number_type(found), classes[name](), ignore_unknown_fields=True)
            name = "Node"
            yield message
    except (ValueError, TypeError, KeyError, RecursionError, ParseError) as error:
        raise DecodeError(str(error)) from error


def _decode_objects(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    while (at := _skip_space(text, at)) < len(text):
        found, at = decoder.raw_decode(text, at)
        yield found


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _number_type(node: dict[str, Any]) -> dict[str, Any]:
    """Replace the name of a node's type by its number."""
    kind = node.get("type") if isinstance(node, dict) else None
    return node | {"type": NodeType[kind.removesuffix(_TYPE_SUFFIX)].value} if isinstance(kind, str) else node


@dataclass(slots=True)
class Node:
    """A node; times are nanoseconds."""

    id: int
    name: str
    type: int
    waits_for: tuple[int, ...]
    parents: tuple[int, ...]
    start_ns: int
    dur_ns: int
    shapes: str
    types: str
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_on_cpu(self) -> bool:
        """Whether the CPU runs it."""
        return bool(self.notes.get("is_cpu_op", False))

    @property
    def lane(self) -> int:
        """Its thread or stream, 0 where it notes no number; traces of PyTorch's note streams as threads."""
        try:
            noted = int(self.notes.get("stream", self.notes.get("tid", 0)))
        except (ValueError, TypeError, OverflowError):
            return 0
        return noted if abs(noted) < _MAX_INT else 0


HOST = Node(id=-1, name="host", type=NodeType.COMP, waits_for=(), parents=(), start_ns=0, dur_ns=0, shapes="", types="")
"""Launches at the beginning what no node of the CPU launches."""


def read(file: ForeignFile) -> ForeignTrace:
    """Read a file of one rank.

    Raises:
        TraceError: It is none, too large, its dependencies form a circle, it has no node of a GPU, or the package
            ``protobuf`` isn't installed.
    """
    file.check_size(file.path.stat().st_size)
    with name_failures(file, FORM):
        nodes = {node.id: node for node in map(_convert_node, _list_messages(file))}
    if not any(node.start_ns for node in nodes.values()):
        _schedule(nodes, file)
    on_gpu = [node for node in nodes.values() if not node.is_on_cpu and node.type not in (0, NodeType.METADATA)]
    if not on_gpu:
        raise NoGpuActivityError(CHAKRA_WITHOUT_KERNELS(path=file.name))
    _extend_waiting_calls(nodes)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node in nodes.values():
        if node.is_on_cpu and node.dur_ns and node.name != HOST_WORK_NAME:
            rows["calls" if _CALL.match(node.name) else "ops"].append(_build_cpu_row(node))
    _add_activities(on_gpu, nodes, rows)
    return ForeignTrace({name: build_table(name, found) for name, found in rows.items()}, {})


def _list_messages(file: ForeignFile) -> Iterator[Any]:
    """Yield the nodes, which follow the metadata, each behind its length or as JSON."""
    content, at, classes = file.path.read_bytes(), 0, load_messages()
    kind = classes["GlobalMetadata"]
    if JSON_START.match(content):
        _, *nodes = decode_messages(content.decode(), classes)
        yield from nodes
        return
    while at < len(content):
        size, shift = 0, 0
        while at < len(content) and content[at] & 0x80 and shift < 28:
            size |= (content[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        size |= (content[at] if at < len(content) else 0) << shift
        at += 1
        if at + size > len(content):
            reason = f"cut short after {len(content):,} bytes"
            raise DamagedTraceError(FORMAT_DAMAGED(path=file.name, form=FORM, reason=reason))
        message = kind.FromString(content[at : at + size])
        at += size
        if kind is classes["Node"]:
            yield message
        kind = classes["Node"]


def _convert_node(node: Any) -> Node:
    return Node(
        id=node.id % _MAX_INT,
        name=node.name or NodeType(node.type if 0 <= node.type <= max(NodeType) else 0).name,
        type=node.type,
        waits_for=tuple(node.data_deps),
        parents=tuple(node.ctrl_deps),
        start_ns=min(node.start_time_micros * 1000, _MAX_INT - 1),
        dur_ns=min(node.duration_micros * 1000, _MAX_INT - 1),
        shapes=node.inputs.shapes,
        types=node.inputs.types,
        notes={one.name: _read_value(one) for one in node.attr},
    )


def _read_value(attribute: Any) -> Any:
    """Return the value of an attribute, whose type its writer chose."""
    found = next((value for named, value in attribute.ListFields() if named.name.endswith(("_val", "_list"))), 0)
    return list(found.values) if hasattr(found, "values") else found


def _schedule(nodes: dict[int, Node], file: ForeignFile) -> None:
    """Set the start of each node by list scheduling.

    Of the nodes whose dependencies have ended, the one that was ready first takes its thread or stream as soon as that
    is free. Here 2 and 4 wait for 1 and share a stream, and 3 waits for 2::

        thread    |1|
        stream 7    |    2    |    4    |
        stream 9              | 3 |
    """
    missing = {node.id: sum(other in nodes for other in set(node.waits_for)) for node in nodes.values()}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in nodes.values():
        for other in set(node.waits_for):
            followers[other].append(node.id)
    free: dict[tuple[bool, int], int] = defaultdict(int)
    ready = dict.fromkeys(nodes, 0)
    queue = [(0, number) for number, count in missing.items() if not count]
    heapq.heapify(queue)
    done = 0
    while queue:
        at, number = heapq.heappop(queue)
        node, done = nodes[number], done + 1
        lane = (node.is_on_cpu, node.lane)
        node.start_ns = max(at, free[lane])
        free[lane] = end = min(node.start_ns + node.dur_ns, _MAX_INT - 1)
        for other in followers[number]:
            ready[other] = max(ready[other], end)
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(queue, (ready[other], other))
    if done < len(nodes):
        raise DamagedTraceError(CHAKRA_CIRCULAR(path=file.name, nodes=len(nodes) - done))


def _extend_waiting_calls(nodes: dict[int, Node]) -> None:
    """Let the calls that wait for the GPU last until they return, for which tracekit writes a node of its own."""
    for node in nodes.values():
        for call in (nodes[other] for other in node.waits_for if other in nodes):
            if node.is_on_cpu and node.name == call.name + RETURN_SUFFIX:
                call.dur_ns = max(call.dur_ns, node.start_ns + node.dur_ns - call.start_ns)


def _build_cpu_row(node: Node) -> dict[str, Any]:
    return {
        "ts_ns": node.start_ns + BASE_NS, "dur_ns": node.dur_ns, "name": node.name, "pid": PROCESS, "tid": node.lane,
        "correlation": node.id, "input_dims": _to_json(node.shapes), "input_types": _to_json(node.types),
    }  # fmt: skip


def _to_json(text: str) -> str | None:
    """Return shapes or types, which converters write as Python does, as JSON; ``None`` for what is neither."""
    written = text.replace("'", '"').replace("(", "[").replace(")", "]")
    try:
        return written if isinstance(msgspec.json.decode(written or "null"), list) else None
    except msgspec.DecodeError:
        return None


def _add_activities(on_gpu: Sequence[Node], nodes: dict[int, Node], rows: dict[str, list[dict[str, Any]]]) -> None:
    """Add the nodes of the GPU, a launch for each that has none of its own, and the waits between their streams."""
    correlation: dict[int, int] = {}
    launches: dict[int, int] = defaultdict(int)
    for node in sorted(on_gpu, key=lambda one: (one.start_ns, one.id)):
        launcher = _find_launcher(node, nodes)
        correlation[node.id] = node.id
        if launcher and _CALL.match(launcher.name) and not launches[launcher.id]:
            correlation[node.id] = launcher.id
        else:
            rows["calls"].append(_make_launch(launcher or HOST, launches[(launcher or HOST).id], node.id))
        launches[(launcher or HOST).id] += 1
        if launcher and isinstance(node.notes.get("op"), str):
            row = _build_cpu_row(node) | {"name": node.notes["op"], "tid": launcher.lane}
            rows["ops"].append(row | {"ts_ns": launcher.start_ns + BASE_NS, "dur_ns": launcher.dur_ns})
        is_copy = node.name.startswith("Memcpy") or node.type in (NodeType.MEM_LOAD, NodeType.MEM_STORE)
        kind = "memcpy" if is_copy else "memset" if node.name.startswith("Memset") else "kernel"
        rows[kind].append(_build_activity_row(node, correlation[node.id]))
    streams = {node.id: node.lane for node in on_gpu}
    for node in on_gpu:
        for other in node.waits_for:
            if streams.get(other, node.lane) != node.lane:
                wait = {"stream": node.lane, "wait_on_stream": streams[other], "wait_on_record": correlation[other]}
                row = _build_cpu_row(node) | {"name": "Stream Wait Event", "dur_ns": 0}
                rows["syncs"].append(row | wait | {"correlation": correlation[node.id]})


def _make_launch(op: Node, number: int, correlation: int) -> dict[str, Any]:
    """Make a launch call just before the end of the op that launches; ``number`` counts its launches."""
    at = max(op.start_ns, op.start_ns + op.dur_ns - LAUNCHES_NS) + min(number, LAUNCHES_NS)
    return _build_cpu_row(op) | {"name": LAUNCH, "ts_ns": at + BASE_NS, "dur_ns": 0, "correlation": correlation}


def _find_launcher(node: Node, nodes: dict[int, Node]) -> Node | None:
    """Find the last node of the CPU that a node of the GPU depends on; calls come before ops."""
    found = [nodes[other] for other in (*node.waits_for, *node.parents) if other in nodes and nodes[other].is_on_cpu]
    return max(found, key=lambda one: (_CALL.match(one.name) is not None, one.start_ns, one.id), default=None)


def _build_activity_row(node: Node, correlation: int) -> dict[str, Any]:
    row = {
        "ts_ns": node.start_ns + BASE_NS, "dur_ns": node.dur_ns, "name": node.name, "pid": 0, "device": 0,
        "stream": node.lane, "correlation": correlation, "bytes": node.notes.get("tensor_size"),
    }  # fmt: skip
    return row | _describe_communication(node) if node.type in _COMMUNICATION else row


def _describe_communication(node: Node) -> dict[str, Any]:
    size, ranks = node.notes.get("comm_size"), node.notes.get("pg_ranks")
    kind, collective = _name_communication(node)
    members = len(ranks) if isinstance(ranks, list) else None
    parts = members if members and kind == SIZED_BY_PART else 1
    return {
        "name": node.name if _COLLECTIVE_KERNEL.search(node.name) else f"nccl:{kind} ({node.name})",
        "collective": collective,
        "collective_dtype": "Byte",
        "in_nelems": size,
        "out_nelems": size * parts if isinstance(size, int) else None,
        "process_group": node.notes.get("pg_name"),
        "group_ranks": str(ranks) if isinstance(ranks, list) else None,
        "group_size": members,
        "receiver": node.notes.get("comm_dst"),
        "sender": node.notes.get("comm_src"),
    }


def _name_communication(node: Node) -> tuple[str, str | None]:
    """Return a kind of communication, and what torch.distributed calls it; ``None`` if the collective isn't known."""
    if node.type != NodeType.COMM_COLL:
        return "send_recv", "send" if node.type == NodeType.COMM_SEND else "recv"
    number = node.notes.get("comm_type")
    if not isinstance(number, int) or not 0 <= number < len(COLLECTIVES):
        return "collective", None
    kind = COLLECTIVES[number]
    return kind, _TORCH_NAMES.get(kind, kind)
