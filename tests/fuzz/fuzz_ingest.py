"""Fuzz ingest, guided by coverage: only a TracekitError may rise, and both decoders must agree.

python -m tests.fuzz.fuzz_ingest CORPUS -max_total_time=1800 -max_len=20000

Needs atheris. ``CORPUS`` is a directory: it is filled with a few small traces first if it is empty, and keeps what
reaches new code. The first byte of an input says what the rest is.
"""

import gzip
import io
import sys
from pathlib import Path

import atheris

from tracekit.ingest.native import get_loops

# First, since numba can't compile what atheris instruments.
get_loops()

with atheris.instrument_imports(include=["tracekit"]):
    from tracekit.errors import TracekitError
    from tracekit.ingest.decode import decode
    from tracekit.ingest.execution_nodes import read_execution_trace
    from tracekit.ingest.stream import open_stream
    from tracekit.testing import TraceBuilder
    from tracekit.trace import RankTrace

JSON, COMPRESSED, EXECUTION_TRACE = range(3)
LARGEST_TEXT = 1 << 20


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


def check_input(data: bytes) -> None:
    """Read one input.

    Raises:
        AssertionError: The decoders differ.
    """
    kind, text = data[:1], data[1:]
    if kind == bytes([COMPRESSED]):
        try:
            with open_stream(io.BytesIO(text), "fuzz") as stream:
                stream.read(LARGEST_TEXT)
        except TracekitError:
            return
    elif kind == bytes([EXECUTION_TRACE]):
        try:
            read_execution_trace(text, "fuzz")
        except TracekitError:
            return
    else:
        careful, fast = read_outcome(text, LARGEST_TEXT), read_outcome(text, 0)
        if not are_equal(careful, fast):
            raise AssertionError(f"the decoders differ: {careful!r} and {fast!r}")


def build_seeds() -> list[bytes]:
    """Return a small trace in each of its forms, and an execution trace."""
    dims = [[64, 32], [32, 16]]
    trace = TraceBuilder().step(1, 0, 200).op("aten::mm", 1, 30, dims=dims, types=["float", "c10::Half"])
    trace.kernel("ampere_sgemm", 20, 100.125, launch=10, grid=[8, 1, 1]).call("cudaDeviceSynchronize", 50, 70)
    trace.metadata["distributedInfo"] = {"rank": 1, "world_size": 2}
    text = trace.to_json()
    events = text[text.index(b"[", text.index(b"traceEvents")) : text.rindex(b"]") + 1]
    observed = b'{"schema": "1.0.1", "pid": 1, "nodes": [{"name": "aten::mm", "id": 2, "rf_id": 1, "scope": 0}]}'
    forms = [(JSON, text), (JSON, events), (COMPRESSED, gzip.compress(text)), (EXECUTION_TRACE, observed)]
    return [bytes([kind]) + data for kind, data in forms]


def main() -> None:
    """Fuzz until the time is over or something is found."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        for number, seed in enumerate(build_seeds()):
            (corpus / f"seed{number}").write_bytes(seed)
    atheris.Setup(sys.argv, check_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
