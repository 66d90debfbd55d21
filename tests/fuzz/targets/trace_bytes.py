"""Bytes that may be a trace, compressed or not, or an execution trace: only a TracekitError rises, the decoders agree.

Bytes are a parser's input, and which of them reach new code only its coverage tells: the long search is atheris'. A
build replays what that found, and edits it at random.
"""

import contextlib
import io

from hypothesis import strategies as st

from tests.fuzz.target import BrokenPromiseError, Target, list_kept
from tracekit.errors import TracekitError
from tracekit.ingest.decode import decode
from tracekit.ingest.execution_trace import read_execution_trace
from tracekit.ingest.stream import open_stream
from tracekit.trace import RankTrace

NAME = "trace_bytes"
LARGEST_TEXT = 1 << 20
READERS = {"careful": LARGEST_TEXT, "fast": 0}
"""Largest text that is decoded at once."""

PIECES = [
    *(
        b"",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"true",
        b"NaN",
        b"-",
        b"1e999",
        b"9" * 40,
        b"0.1",
    ),
    *(
        b"\\u0000",
        b"\\ud800",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\x00",
        b"\x1f\x8b",
        b"PK\x03\x04",
        b"\x28\xb5\x2f\xfd",
        b"// x\n",
    ),
    *(b'"ts": 1', b'"ph": "X"', b'"cat": "kernel"', b'"args": {', b'"traceEvents": [', b"[" * 100, b" " * 100),
]


def read_outcome(data: bytes, small_bytes: int) -> RankTrace | str:
    """Return the trace, or the error's text."""
    try:
        return decode(io.BytesIO(data), "fuzz", small_bytes=small_bytes)
    except TracekitError as error:
        return str(error)


def are_equal(one: RankTrace | str, other: RankTrace | str) -> bool:
    """Return whether two decoders agree."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    facts = [(trace.device, trace.rank, trace.world_size, trace.metadata, trace.warnings) for trace in (one, other)]
    return (
        facts[0] == facts[1]
        and all(one.tables[name].equals(other.tables[name]) for name in one.tables)
        and one.ledger.equals(other.ledger)
    )


def check(data: bytes) -> None:
    """Read bytes with every reader.

    Raises:
        BrokenPromiseError: The decoders differ.
    """
    outcomes = [read_outcome(data, small_bytes) for small_bytes in READERS.values()]
    if not are_equal(*outcomes):
        raise BrokenPromiseError("the decoders differ", outcomes)
    with contextlib.suppress(TracekitError):
        read_execution_trace(data, "fuzz")
    with contextlib.suppress(TracekitError), open_stream(io.BytesIO(data), "fuzz") as stream:
        stream.read(LARGEST_TEXT)


def apply_cuts(data: bytes, cuts: list[tuple[float, int, bytes]]) -> bytes:
    """Replace pieces of some bytes, each given by where in them it begins, from 0 to 1, and its length."""
    for where, length, piece in cuts:
        at = int(where * len(data))
        data = data[:at] + piece + data[at + length :]
    return data


pieces = st.one_of(st.sampled_from(PIECES), st.binary(max_size=4))
cuts = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), pieces), min_size=1, max_size=6)

TARGET = Target(
    name=NAME,
    cases=st.builds(apply_cuts, st.sampled_from([path.read_bytes() for path in list_kept(NAME)] or [b"{}"]), cuts),
    check=check,
    load=bytes,
    dump=bytes,
    suffix=".json",
    examples=150,
)
