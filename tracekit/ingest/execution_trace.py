"""Read execution traces (Chakra, PyTorch's ExecutionTraceObserver), and join them to the trace of the same run.

They hold what the profiler may not record: shapes and types of every op, and the sizes of collectives. PyTorch's
``execution_trace_observer.cpp`` writes schema 1.0 with the inputs beside the node's name, and since ``chakra.0.0.4``
nested (``inputs.shapes``) with everything else in ``attrs``. Both are detected by their structure.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct, field

from tracekit.errors import DamagedTraceError, NotATraceError, TraceError
from tracekit.messages import traces as messages
from tracekit.messages.traces import SHAPES_NOT_RECORDED
from tracekit.schema import COLLECTIVE_COLUMNS, OP_INPUT_COLUMNS, OPS
from tracekit.trace import RankTrace

COMMS_OP = "record_param_comms"
NODE_DTYPES = {
    "record_function_id": pl.Int64,
    "thread": pl.Int64,
    "name": pl.String,
    **{column.name: OPS.dtypes[column.name] for column in (*OP_INPUT_COLUMNS, *COLLECTIVE_COLUMNS)},
}

_SCALAR_TYPES = frozenset({"Int", "Double", "Bool", "ComplexDouble", "SymInt", "SymFloat", "SymBool"})
_TENSOR_PREFIX, _LIST_PREFIX = "Tensor(", "GenericList["
_NUMEL_INDEX = 3  # of a tensor's value: [id, storage, offset, elements, bytes of one, device]
_USER_SCOPE = 7
_COLLECTIVE_DTYPES = {
    "float": "Float",
    "double": "Double",
    "long int": "Long",
    "long": "Long",
    "int": "Int",
    "short int": "Short",
    "short": "Short",
    "unsigned char": "Byte",
    "signed char": "Char",
    "bool": "Bool",
}
"""Dtype names of collectives that differ from the C++ type's own name."""


class _NodeInputs(Struct):
    values: list[Any] = field(default_factory=list)
    shapes: list[Any] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    strides: list[Any] = field(default_factory=list)


class _NodeAttribute(Struct):
    name: str
    value: Any = None


class ExecutionNode(Struct):
    """A node of the file: an op, or a named range."""

    name: str = ""
    id: int = 0
    parent: int = 0
    ctrl_deps: Any = None
    rf_id: int | None = None
    tid: int = 0
    scope: int = 0
    inputs: Any = None
    input_shapes: list[Any] = field(default_factory=list)
    input_types: list[str] = field(default_factory=list)
    outputs: Any = None
    attrs: list[_NodeAttribute] = field(default_factory=list)

    @property
    def parent_id(self) -> int:
        """The node that called it; recent versions name it otherwise."""
        return self.ctrl_deps if isinstance(self.ctrl_deps, int) else self.parent

    @property
    def attributes(self) -> dict[str, Any]:
        """What recent versions write as attributes, by name."""
        return {attribute.name: attribute.value for attribute in self.attrs}

    @property
    def is_annotation(self) -> bool:
        """Whether it is a named range."""
        return bool(self.attributes.get("scope", self.scope) == _USER_SCOPE)


class ExecutionTraceFile(Struct):
    """The file."""

    schema: str
    nodes: list[ExecutionNode]
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """A decoded execution trace.

    Attributes:
        pid: The process that wrote it; ``None`` if not recorded.
        nodes: Its ops (``NODE_DTYPES``), in the order in which each thread started them, without annotations.
    """

    pid: int | None
    nodes: pl.DataFrame


def read_execution_trace(data: bytes, source: str) -> ExecutionTrace:
    """Decode an execution trace.

    Args:
        data: The JSON text.
        source: Name of the file in messages.

    Raises:
        DamagedTraceError: It is invalid JSON.
        NotATraceError: It is other JSON, or of an unknown schema.
    """
    file = decode_file(data, source)
    with report_malformed_nodes(source):
        return ExecutionTrace(file.pid, _build_node_table(file.nodes))


def decode_file(data: bytes, source: str) -> ExecutionTraceFile:
    """Decode the file; arguments and errors as for :func:`read_execution_trace`."""
    try:
        file = msgspec.json.decode(data, type=ExecutionTraceFile)
    except msgspec.ValidationError as error:
        raise _make_format_error(source, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedTraceError(messages.EXECUTION_TRACE_INVALID(path=source, reason=str(error))) from error
    if file.schema.split(".")[0] != "1":
        raise NotATraceError(messages.EXECUTION_TRACE_SCHEMA(path=source, schema=file.schema))
    return file


@contextmanager
def report_malformed_nodes(source: str) -> Iterator[None]:
    """Raise what is wrong with a node as an error of the file ``source``."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _make_format_error(source, f"a node is malformed: {str(error).partition(chr(10))[0]}") from error


def _make_format_error(source: str, reason: str) -> NotATraceError:
    return NotATraceError(messages.EXECUTION_TRACE_MALFORMED(path=source, reason=reason))


def _build_node_table(nodes: Iterable[ExecutionNode]) -> pl.DataFrame:
    messages: list[_ParamCommsMessage] = []
    rows: list[dict[str, Any]] = []
    for node in nodes:
        attributes = node.attributes
        rf_id = attributes.get("rf_id", node.rf_id)
        if not rf_id or node.is_annotation:
            continue
        inputs = _read_inputs(node)
        row = {"record_function_id": rf_id, "thread": attributes.get("tid", node.tid), "name": node.name}
        rows.append(row | _format_signature(inputs))
        if "collective_name" in attributes:
            rows[-1] |= _read_message(attributes)
        elif node.name == COMMS_OP and (message := _ParamCommsMessage.from_inputs(inputs, node, len(rows) - 1)):
            messages.append(message)
    sizes = _infer_group_sizes(messages)
    for message in messages:
        rows[message.row] |= message.columns | {"group_size": sizes.get(message.group)}
    return pl.DataFrame(rows, schema=NODE_DTYPES).sort("record_function_id", maintain_order=True)


def format_inputs(node: ExecutionNode) -> dict[str, str | None]:
    """Format the inputs of a node as the columns of ``schema.OP_INPUT_COLUMNS``; empty for an op without inputs."""
    return _format_signature(_read_inputs(node))


def _read_inputs(node: ExecutionNode) -> _NodeInputs:
    if isinstance(node.inputs, dict):
        return msgspec.convert(node.inputs, _NodeInputs)
    return _NodeInputs(node.inputs or [], node.input_shapes, node.input_types)


def _format_signature(inputs: _NodeInputs) -> dict[str, str | None]:
    """Format the columns of ``schema.OP_INPUT_COLUMNS``; empty for an op without inputs."""
    types, shapes, values = inputs.types, inputs.shapes, inputs.values
    if not len(types) == len(shapes) == len(values):
        raise ValueError("its inputs have unequal numbers of values, shapes and types")
    if not types:
        return {}
    return {
        "input_dims": _to_json([_convert_shape(*pair) for pair in zip(types, shapes, strict=True)]),
        "input_types": _to_json([_convert_type(text) for text in types]),
        "input_strides": _to_json([_convert_shape(*pair) for pair in zip(types, inputs.strides, strict=True)])
        if len(inputs.strides) == len(types)
        else None,
        "concrete_inputs": _to_json([_convert_value(*pair) for pair in zip(types, values, strict=True)]),
    }


def _to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _split_list_type(type_: str) -> list[str]:
    inner = type_.removeprefix(_LIST_PREFIX).removesuffix("]")
    return inner.split(",") if inner else []


def _convert_type(type_: str) -> str:
    """Convert an input's type to the profiler's name: ``float`` for ``Tensor(float)``, ``Scalar`` for ``Int``."""
    if type_.startswith(_TENSOR_PREFIX):
        name = type_.removeprefix(_TENSOR_PREFIX).removesuffix(")")
        return "" if name.startswith("nullptr") else name
    if type_ in _SCALAR_TYPES:
        return "Scalar"
    elements = _split_list_type(type_) if type_.startswith(_LIST_PREFIX) else []
    if elements and all(element.startswith(_TENSOR_PREFIX) for element in elements):
        return "TensorList"
    return "ScalarList" if elements and _SCALAR_TYPES.issuperset(elements) else ""


def _convert_shape(type_: str, shape: Any) -> Any:
    """Return a shape, or the shapes of a list of tensors; empty for other inputs.

    The observer writes nested empty lists for these.
    """
    return shape if type_.startswith(_TENSOR_PREFIX) or _convert_type(type_) == "TensorList" else []


def _convert_value(type_: str, value: Any) -> str:
    if type_ in _SCALAR_TYPES:
        return str(value)
    if type_.startswith(_LIST_PREFIX) and isinstance(value, list) and _SCALAR_TYPES.issuperset(_split_list_type(type_)):
        return f"[{','.join(map(str, value))}]"
    return ""


def _read_message(attributes: dict[str, Any]) -> dict[str, Any]:
    """Read the message attributes that newer versions write on the node of a collective."""
    return {
        "collective": attributes["collective_name"],
        "collective_dtype": attributes.get("dtype"),
        "in_nelems": attributes.get("in_msg_nelems"),
        "out_nelems": attributes.get("out_msg_nelems"),
        "group_size": attributes.get("pg_size"),
        "process_group": attributes.get("pg_name"),
        "group_description": attributes.get("pg_desc"),
    }


@dataclass(frozen=True, slots=True)
class _ParamCommsMessage:
    """A collective in older versions, with inputs ``[tensors, sequence, group, rank, name, splits, splits]``."""

    row: int
    group: str
    splits: int
    columns: dict[str, Any]

    @classmethod
    def from_inputs(cls, inputs: _NodeInputs, node: ExecutionNode, row: int) -> "_ParamCommsMessage | None":
        """Parse the inputs; ``None`` for a node without tensors, such as a wait."""
        types = inputs.types
        name = next(
            (i for i in range(4, len(types) - 1) if types[i] == "String" and types[i + 1].startswith(_LIST_PREFIX)), 0
        )
        sent = _convert_type(types[0]) if types else ""
        if not name or not sent or sent in ("Scalar", "ScalarList"):
            return None
        outputs = node.outputs.get("values", []) if isinstance(node.outputs, dict) else node.outputs or []
        element = _split_list_type(types[0])[0] if sent == "TensorList" else types[0]
        columns = {
            "collective": inputs.values[name],
            "collective_dtype": _convert_dtype(_convert_type(element)),
            "in_nelems": _count_elements(inputs.values[0]),
            "out_nelems": _count_elements(outputs[0]) if outputs else None,
        }
        splits = max((len(value) for value in inputs.values[name + 1 :] if isinstance(value, list)), default=0)
        return cls(row, _to_json(inputs.values[name - 2]), splits, columns)


def _convert_dtype(type_: str) -> str:
    return _COLLECTIVE_DTYPES.get(type_, type_.removeprefix("c10::"))


def _count_elements(value: Sequence[Any]) -> int:
    """Count the elements of a tensor, or of all tensors in a list."""
    if value and isinstance(value[0], list):
        return sum(_count_elements(tensor) for tensor in value)
    return int(value[_NUMEL_INDEX])


def _infer_group_sizes(messages: Iterable[_ParamCommsMessage]) -> dict[str, int]:
    """Infer the number of ranks of each process group from split messages, which have a split per rank."""
    sizes: dict[str, int] = {}
    for message in messages:
        if message.splits:
            sizes[message.group] = max(message.splits, sizes.get(message.group, 0))
    return sizes


FILLED_COLUMNS = tuple(column.name for column in (*OP_INPUT_COLUMNS, *COLLECTIVE_COLUMNS))

_HEAD_PATTERN = re.compile(rb'^\s*\{\s*"schema"\s*:\s*"\d+\.\d+\.\d+[^"]*"\s*,\s*"(?:pid|time|start_ts|nodes)"\s*:')
_MIN_NAME_AGREEMENT = 0.99
_ID_COLUMN = "record_function_id"
_OBSERVED_SUFFIX = "_observed"


def is_execution_trace(head: bytes) -> bool:
    """Return whether the head of a file is that of an execution trace."""
    return _HEAD_PATTERN.match(head) is not None


def join_execution_trace(rank: RankTrace, execution_trace: bytes, source: str) -> RankTrace:
    """Fill in shapes, types and collective sizes that ``rank`` lacks and its execution trace has.

    Ops are joined by their record function id. PyTorch before 2.3 does not write it into the trace. Then the ops of
    every thread must be the same, in the same order and with the same shapes, or nothing is joined.

    Args:
        rank: A trace as it was read.
        execution_trace: The execution trace's JSON text.
        source: Name of the execution trace in messages.

    Raises:
        DamagedTraceError: It is invalid JSON.
        NotATraceError: It is other JSON.
        TraceError: It is of another rank or run, or there is nothing to join by.
    """
    other = read_execution_trace(execution_trace, source)
    _check_process(rank, other, source)
    ids = rank.ops[_ID_COLUMN].replace(0, None)
    if ids.count():
        nodes = _match_by_id(rank.ops.select(ids, "name"), other.nodes, rank.source, source)
    else:
        ids, nodes = _match_by_order(rank, other.nodes, source), other.nodes
    ops, shapes, sizes = _fill_columns(rank.ops.with_columns(ids), nodes)
    done = messages.EXECUTION_TRACE_JOINED(ops=shapes, collectives=sizes, path=source)
    still = (warning for warning in rank.warnings if not (shapes and warning.template is SHAPES_NOT_RECORDED))
    return replace(rank, ops=ops, warnings=(*still, done))


def _check_process(rank: RankTrace, other: ExecutionTrace, source: str) -> None:
    if rank.ops.is_empty():
        raise TraceError(messages.EXECUTION_TRACE_WITHOUT_OPS(trace=rank.source, path=source))
    known = rank.ops["pid"].drop_nulls().unique().sort().to_list()
    if other.pid is not None and known and other.pid not in known:
        raise TraceError(
            messages.EXECUTION_TRACE_OF_OTHER_PROCESS(
                path=source, process=other.pid, trace=rank.source, processes=known[:3]
            )
        )


def _match_by_id(ops: pl.DataFrame, nodes: pl.DataFrame, trace: str, source: str) -> pl.DataFrame:
    """Return the nodes that are ops of the trace: the same name and the same id, used once."""
    nodes = nodes.unique(_ID_COLUMN, keep="none", maintain_order=True)
    common = nodes.join(
        ops.select(_ID_COLUMN, op="name").unique(_ID_COLUMN, keep="none"), on=_ID_COLUMN, maintain_order="left"
    )
    if common.is_empty():
        raise TraceError(messages.EXECUTION_TRACE_WITHOUT_COMMON_IDS(trace=trace, path=source))
    same = common.filter(pl.col("name") == pl.col("op"))
    if same.height < _MIN_NAME_AGREEMENT * common.height:
        raise TraceError(
            messages.EXECUTION_TRACE_OPS_DIFFER(
                path=source, trace=trace, differing=common.height - same.height, common=common.height
            )
        )
    return same.drop("op")


def _match_by_order(rank: RankTrace, nodes: pl.DataFrame, source: str) -> pl.Series:
    """Return the id of each op, if the ops of each thread are exactly its nodes."""
    ops = rank.ops.select("tid", "name", "external_id", "input_dims").with_row_index("row")
    if ops["external_id"].null_count() or not ops["input_dims"].count() or nodes[_ID_COLUMN].is_duplicated().any():
        raise _make_no_ids_error(rank, source)
    threads = ops.sort("external_id").group_by("tid", maintain_order=True).agg("row", "name")
    observed = nodes.group_by("thread", maintain_order=True).agg(_ID_COLUMN, "name")
    both = threads.join(observed, on="name")
    if not both.height == threads.height == observed.height == both["tid"].n_unique():
        raise _make_no_ids_error(rank, source)
    ids = ops.join(
        both.select("row", _ID_COLUMN).explode("row", _ID_COLUMN), on="row", how="left", maintain_order="left"
    )
    _check_shapes(ids, nodes, rank.source, source)
    return ids[_ID_COLUMN]


def _make_no_ids_error(rank: RankTrace, source: str) -> TraceError:
    return TraceError(messages.EXECUTION_TRACE_WITHOUT_IDS(trace=rank.source, path=source))


def _check_shapes(ops: pl.DataFrame, nodes: pl.DataFrame, trace: str, source: str) -> None:
    both = ops.join(nodes.select(_ID_COLUMN, observed="input_dims"), on=_ID_COLUMN).drop_nulls(
        ["input_dims", "observed"]
    )
    pairs = both.select("name", "input_dims", "observed").unique(maintain_order=True)
    for name, recorded, observed in pairs.iter_rows():
        if not _agree(json.loads(recorded), json.loads(observed)):
            raise TraceError(messages.EXECUTION_TRACE_SHAPES_DIFFER(path=source, trace=trace, op=name))


def _agree(recorded: list[Any], observed: list[Any]) -> bool:
    """Return whether two records of an op's shapes can be of one call; either may be incomplete."""
    pairs = zip(recorded, observed, strict=False)
    return len(recorded) == len(observed) and all(a == b or not a or not b for a, b in pairs)


def _fill_columns(ops: pl.DataFrame, nodes: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Fill in the missing columns of ``ops``; also return for how many ops and collectives that was done."""
    found = ops.join(
        nodes.select(_ID_COLUMN, *FILLED_COLUMNS),
        on=_ID_COLUMN,
        how="left",
        suffix=_OBSERVED_SUFFIX,
        maintain_order="left",
    )
    with_lists = pl.when(_lacks_lists()).then(f"input_dims{_OBSERVED_SUFFIX}").otherwise(None)
    filled = found.with_columns(
        pl.coalesce(*([with_lists] if name == "input_dims" else []), name, f"{name}{_OBSERVED_SUFFIX}").alias(name)
        for name in FILLED_COLUMNS
    )
    return OPS.conform(filled), _count_changed(found, filled, "input_dims"), _count_changed(found, filled, "in_nelems")


def _count_changed(before: pl.DataFrame, after: pl.DataFrame, name: str) -> int:
    return after.filter(before[name].ne_missing(after[name])).height


def _lacks_lists() -> pl.Expr:
    """Return whether shapes within tensor lists are missing: PyTorch before 2.2 recorded none."""
    has_lists = pl.col("input_types").str.contains('"TensorList"', literal=True)
    return has_lists & ~pl.col("input_dims").str.slice(1).str.contains("[[", literal=True)
