"""The nodes of an execution trace as a table, with their inputs written as the profiler writes them.

PyTorch's ``execution_trace_observer.cpp`` writes schema 1.0 with the inputs beside the node's name, and since
``chakra.0.0.4`` nested (``inputs.shapes``) with everything else in ``attrs``; both are told by their form.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct, field

from tracekit.errors import DamagedTraceError, NotATraceError
from tracekit.schema import COLLECTIVE, OPS, SIGNATURE

COMMUNICATION = "record_param_comms"
NODES = {
    "record_function_id": pl.Int64,
    "thread": pl.Int64,
    "name": pl.String,
    **{column.name: OPS.dtypes[column.name] for column in (*SIGNATURE, *COLLECTIVE)},
}

_SCALARS = frozenset({"Int", "Double", "Bool", "ComplexDouble", "SymInt", "SymFloat", "SymBool"})
_TENSOR, _LIST = "Tensor(", "GenericList["
_NUMEL = 3  # of a tensor's value: [id, storage, offset, elements, bytes of one, device]
_USER_SCOPE = 7
_DTYPES = {
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
"""The names that collectives are recorded with, where they aren't the C++ type's own."""


class _Values(Struct):
    values: list[Any] = field(default_factory=list)
    shapes: list[Any] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    strides: list[Any] = field(default_factory=list)


class _Attribute(Struct):
    name: str
    value: Any = None


class _Node(Struct):
    name: str = ""
    rf_id: int | None = None
    tid: int = 0
    scope: int = 0
    inputs: Any = None
    input_shapes: list[Any] = field(default_factory=list)
    input_types: list[str] = field(default_factory=list)
    outputs: Any = None
    attrs: list[_Attribute] = field(default_factory=list)


class _File(Struct):
    schema: str
    nodes: list[_Node]
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """A decoded execution trace.

    Attributes:
        pid: The process that wrote it; ``None`` if it doesn't say.
        nodes: Its ops (``NODES``), in the order in which each thread started them; annotations are left out.
    """

    pid: int | None
    nodes: pl.DataFrame


def read(data: bytes, source: str) -> ExecutionTrace:
    """Decode an execution trace.

    Args:
        data: The JSON text.
        source: What to call it in messages.

    Raises:
        DamagedTraceError: It is no valid JSON.
        NotATraceError: It is JSON of another kind, or of a schema that isn't known.
    """
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.ValidationError as error:
        raise _not_one(source, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedTraceError(f"{source} is no valid JSON: {error}.", "Copy or record the file again.") from error
    if file.schema.split(".")[0] != "1":
        raise _not_one(source, f"schema {file.schema[:40]!r}; known are 1.0 and 1.1")
    try:
        return ExecutionTrace(file.pid, _table(file.nodes))
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _not_one(source, f"a node is malformed: {str(error).partition(chr(10))[0]}") from error


def _not_one(source: str, reason: str) -> NotATraceError:
    return NotATraceError(
        f"{source} is no execution trace ({reason}).", "Record one with torch.profiler's ExecutionTraceObserver."
    )


def _table(nodes: Iterable[_Node]) -> pl.DataFrame:
    messages: list[_Message] = []
    rows: list[dict[str, Any]] = []
    for node in nodes:
        attributes = {attribute.name: attribute.value for attribute in node.attrs}
        rf_id = attributes.get("rf_id", node.rf_id)
        if not rf_id or attributes.get("scope", node.scope) == _USER_SCOPE:
            continue
        inputs = _inputs(node)
        row = {"record_function_id": rf_id, "thread": attributes.get("tid", node.tid), "name": node.name}
        rows.append(row | _signature(inputs))
        if "collective_name" in attributes:
            rows[-1] |= _recorded_message(attributes)
        elif node.name == COMMUNICATION and (message := _Message.of(inputs, node, len(rows) - 1)):
            messages.append(message)
    sizes = _group_sizes(messages)
    for message in messages:
        rows[message.row] |= message.columns | {"group_size": sizes.get(message.group)}
    return pl.DataFrame(rows, schema=NODES).sort("record_function_id", maintain_order=True)


def _inputs(node: _Node) -> _Values:
    if isinstance(node.inputs, dict):
        return msgspec.convert(node.inputs, _Values)
    return _Values(node.inputs or [], node.input_shapes, node.input_types)


def _signature(inputs: _Values) -> dict[str, str | None]:
    """The columns of ``schema.SIGNATURE``; null for an op without inputs."""
    types, shapes, values = inputs.types, inputs.shapes, inputs.values
    if not len(types) == len(shapes) == len(values):
        raise ValueError("its inputs have unequal numbers of values, shapes and types")
    if not types:
        return {}
    return {
        "input_dims": _text([_shape(*pair) for pair in zip(types, shapes, strict=True)]),
        "input_types": _text([_kind(text) for text in types]),
        "input_strides": _text([_shape(*pair) for pair in zip(types, inputs.strides, strict=True)])
        if len(inputs.strides) == len(types)
        else None,
        "concrete_inputs": _text([_concrete(*pair) for pair in zip(types, values, strict=True)]),
    }


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _elements(type_: str) -> list[str]:
    inner = type_.removeprefix(_LIST).removesuffix("]")
    return inner.split(",") if inner else []


def _kind(type_: str) -> str:
    """An input's type as the profiler names it: ``float`` for ``Tensor(float)``, ``Scalar`` for ``Int``."""
    if type_.startswith(_TENSOR):
        name = type_.removeprefix(_TENSOR).removesuffix(")")
        return "" if name.startswith("nullptr") else name
    if type_ in _SCALARS:
        return "Scalar"
    elements = _elements(type_) if type_.startswith(_LIST) else []
    if elements and all(element.startswith(_TENSOR) for element in elements):
        return "TensorList"
    return "ScalarList" if elements and _SCALARS.issuperset(elements) else ""


def _shape(type_: str, shape: Any) -> Any:
    """A shape, or those of a list of tensors; empty for all else, where the observer writes nested empty lists."""
    return shape if type_.startswith(_TENSOR) or _kind(type_) == "TensorList" else []


def _concrete(type_: str, value: Any) -> str:
    if type_ in _SCALARS:
        return str(value)
    if type_.startswith(_LIST) and isinstance(value, list) and _SCALARS.issuperset(_elements(type_)):
        return f"[{','.join(map(str, value))}]"
    return ""


def _recorded_message(attributes: dict[str, Any]) -> dict[str, Any]:
    """What newer versions note on the node of a collective."""
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
class _Message:
    """A collective of the older versions: its inputs are ``[tensors, sequence, group, rank, name, splits, splits]``."""

    row: int
    group: str
    splits: int
    columns: dict[str, Any]

    @classmethod
    def of(cls, inputs: _Values, node: _Node, row: int) -> "_Message | None":
        """``None`` for a node without tensors, such as a wait."""
        types = inputs.types
        name = next((i for i in range(4, len(types) - 1) if types[i] == "String" and types[i + 1].startswith(_LIST)), 0)
        sent = _kind(types[0]) if types else ""
        if not name or not sent or sent in ("Scalar", "ScalarList"):
            return None
        outputs = node.outputs.get("values", []) if isinstance(node.outputs, dict) else node.outputs or []
        element = _elements(types[0])[0] if sent == "TensorList" else types[0]
        columns = {
            "collective": inputs.values[name],
            "collective_dtype": _collective_dtype(_kind(element)),
            "in_nelems": _numel(inputs.values[0]),
            "out_nelems": _numel(outputs[0]) if outputs else None,
        }
        splits = max((len(value) for value in inputs.values[name + 1 :] if isinstance(value, list)), default=0)
        return cls(row, _text(inputs.values[name - 2]), splits, columns)


def _collective_dtype(type_: str) -> str:
    return _DTYPES.get(type_, type_.removeprefix("c10::"))


def _numel(value: Sequence[Any]) -> int:
    """Elements of a tensor, or of all tensors of a list."""
    if value and isinstance(value[0], list):
        return sum(_numel(tensor) for tensor in value)
    return int(value[_NUMEL])


def _group_sizes(messages: Iterable[_Message]) -> dict[str, int]:
    """Ranks of each process group, as far as a message was split: there is a part for each rank."""
    sizes: dict[str, int] = {}
    for message in messages:
        if message.splits:
            sizes[message.group] = max(message.splits, sizes.get(message.group, 0))
    return sizes
