"""Read the nodes of an execution trace as a table, with inputs in the profiler's format.

PyTorch's ``execution_trace_observer.cpp`` writes schema 1.0 with the inputs beside the node's name, and since
``chakra.0.0.4`` nested (``inputs.shapes``) with everything else in ``attrs``. Both are detected by their structure.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct, field

from tracekit.errors import DamagedTraceError, NotATraceError
from tracekit.messages import traces as messages
from tracekit.schema import COLLECTIVE_COLUMNS, OP_INPUT_COLUMNS, OPS

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
