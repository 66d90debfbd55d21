"""Files of other tools with hostile values, each written as that tool writes it: only a TracekitError rises.

A document stands for a file, so that an edit says what is hostile about it: the JSON form of protobuf's messages, or
the rows of a database's tables.
"""

import contextlib
import io
import json
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from hypothesis import strategies as st

from tests.fuzz.documents import apply_edits, dump_case, make_document_edits
from tests.fuzz.target import Target
from tests.ingest.formats import nsight_files, test_rocpd, test_rocprofv3, test_xplane
from tracekit.errors import TracekitError
from tracekit.ingest.decode import decode_ranks
from tracekit.ingest.formats import xplane
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace


def make_chakra() -> Any:
    """Return an op, a kernel and a collective of Chakra, behind the metadata."""
    times = {"start_time_micros": 0, "duration_micros": 10}
    gpu = {"is_cpu_op": False, "stream": 7}
    sent = {"comm_type": 0, "comm_size": 64, "pg_ranks": [0, 1], "pg_name": "dp"}
    return [
        {"version": "0.0.4"},
        {"id": "1", "name": "aten::mm", "type": 4, **times, "attr": {"is_cpu_op": True, "tid": 5}},
        {"id": "2", "name": "gemm", "type": 4, **times, "data_deps": [1], "attr": {**gpu, "tensor_size": 64}},
        {"id": "3", "name": "grads", "type": 7, **times, "data_deps": [2], "ctrl_deps": [1], "attr": {**gpu, **sent}},
    ]


def make_xplane() -> Any:
    """Return a profile of XLA."""
    return MessageToDict(test_xplane.build_space(), preserving_proto_field_name=True)


def make_nsight() -> Any:
    """Return the tables of Nsight Systems."""
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[64, 64], [64, 64]])
    rank = builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10).load().ranks[0]
    return {name: table.to_dicts() for name, table in nsight_files.build_tables(rank).items()}


def make_rocpd() -> Any:
    """Return the tables of ROCm's profiler."""
    return {name: table.to_dicts() for name, table in test_rocpd.build_tables().items()}


def write_chakra(path: Path, document: Any) -> None:
    """Write messages as ``chakra_jsonizer`` prints them; an attribute's type is that of its value."""
    texts = []
    for message in map(fit_numbers, document):
        if isinstance(message, dict) and isinstance(notes := message.get("attr"), dict):
            message |= {"attr": [{"name": name, **type_value(value)} for name, value in notes.items()]}
        texts.append(json.dumps(message))
    path.write_text("\n".join(texts), encoding="utf-8")


def type_value(value: Any) -> dict[str, Any]:
    """Return the field of Chakra's attributes that holds a value."""
    if isinstance(value, list):
        return {"int64_list": {"values": [one for one in value if type(one) is int]}}
    kinds = {bool: "bool_val", int: "int64_val", float: "double_val"}
    return {kinds[type(value)]: value} if type(value) in kinds else {"string_val": str(value)}


def write_xplane(path: Path, document: Any) -> None:
    """Write a profile; what its fields can't hold is left out."""
    space = xplane.load_messages()["XSpace"]()
    fill_message(space, fit_numbers(document))
    path.write_bytes(space.SerializeToString())


def fill_message(message: Any, values: Any) -> None:
    """Set the fields of a message that can hold what a document says."""
    for name, value in values.items() if isinstance(values, dict) else ():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            continue
        for one in value if isinstance(value, list) else [value]:
            with contextlib.suppress(ParseError):
                if field.message_type is None:
                    ParseDict({name: one}, message)
                else:
                    item = getattr(message, name)
                    fill_message(item.add() if hasattr(item, "add") else item, one)


def fit_numbers(value: Any) -> Any:
    """Return a document whose whole numbers fit into 64 bits, as protobuf has them."""
    if isinstance(value, dict):
        return {key: fit_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [fit_numbers(one) for one in value]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return max(-(2**63), min(value, 2**63 - 1)) if is_number else value


def write_tables(path: Path, document: Any) -> None:
    """Write rows into a database, whose columns take any type."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for name, rows in document.items():
            given = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            columns = list(dict.fromkeys(column for row in given for column in row if "\0" not in column)) or ["id"]
            quoted = [f'"{column.replace(chr(34), chr(34) * 2)}"' for column in columns]
            database.execute(f'CREATE TABLE "{name}" ({", ".join(quoted)})')
            places = ", ".join("?" * len(columns))
            values = [[to_sql(row.get(column)) for column in columns] for row in given]
            database.executemany(f'INSERT INTO "{name}" VALUES ({places})', values)


def to_sql(value: Any) -> Any:
    """Return a value that a database can hold: others as JSON, long numbers as texts."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return json.dumps(value) if isinstance(value, list | dict) else value


FORMS: dict[str, tuple[Callable[[], Any], Callable[[Path, Any], None]]] = {
    "rank.0.et": (make_chakra, write_chakra),
    "host.xplane.pb": (make_xplane, write_xplane),
    "report.sqlite": (make_nsight, write_tables),
    "results.db": (make_rocpd, write_tables),
    "results.json": (test_rocprofv3.build_report, lambda path, document: test_rocprofv3.write(path, document)),
}
"""File name -> what makes a good document, and what writes one."""


@cache
def load_document(name: str) -> Any:
    """Return the good document of a form, which nobody may change."""
    return json.loads(json.dumps(FORMS[name][0]()))


def make_case(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy of cases made of a form's document."""
    return st.builds(lambda edits: {"base": name, "edits": edits}, make_document_edits(load_document(name)))


def read_document(name: str, document: Any) -> MeasuredRun:
    """Write a document in its form, read the file, and prepare what could be read of it.

    Raises:
        TracekitError: Nothing could.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        FORMS[name][1](path, document)
        content = path.read_bytes()
    return prepare_run(Trace(tuple(decode_ranks(io.BytesIO(content), name))))


def check(case: dict[str, Any]) -> None:
    """Read an edited document."""
    with contextlib.suppress(TracekitError):
        read_document(case["base"], apply_edits(load_document(case["base"]), case["edits"]))


TARGET = Target(
    name="foreign_values",
    cases=st.sampled_from([*FORMS]).flatmap(make_case),
    check=check,
    load=json.loads,
    dump=dump_case,
    suffix=".json",
    examples=30,
)
