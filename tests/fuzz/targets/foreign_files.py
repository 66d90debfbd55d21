"""Damaged files of other tools: whatever they hold, only a TracekitError rises."""

import contextlib
import io
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.target import Target
from tests.fuzz.targets.trace_bytes import apply_cuts, cuts
from tests.ingest.formats import (
    nsight_files,
    test_chakra_in,
    test_perfetto,
    test_perfetto_torch,
    test_rocpd,
    test_rocprofv3,
    test_xplane,
    torch_perfetto_files,
)
from tracekit.errors import TracekitError
from tracekit.ingest.decode import decode_ranks
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

BASES = ("report.sqlite", "results.db", "results.json", "host.xplane.pb", "trace.pftrace", "torch.pftrace", "rank.0.et")


@cache
def make_base(name: str) -> bytes:
    """Return a good file of a format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if name == "report.sqlite":
            builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[64, 64], [64, 64]])
            trace = builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10).load()
            nsight_files.write_database(path, nsight_files.build_tables(trace.ranks[0]))
        elif name == "results.db":
            nsight_files.write_database(path, test_rocpd.build_tables())
        elif name == "results.json":
            test_rocprofv3.write(path, test_rocprofv3.build_report())
        elif name == "host.xplane.pb":
            path.write_bytes(test_xplane.build_space().SerializeToString())
        elif name == "trace.pftrace":
            path.write_bytes(test_perfetto.build_trace().SerializeToString())
        elif name == "torch.pftrace":
            torch_perfetto_files.write(path, test_perfetto_torch.build_trace().to_dict()["traceEvents"])
        else:
            gpu = {"is_cpu_op": False, "stream": 7, "comm_type": 0, "comm_size": 64}
            test_chakra_in.write(path, (1, "a", 4, 10, [], {"is_cpu_op": True}), (2, "b", 7, 10, [1], gpu))
        return path.read_bytes()


def check(case: tuple[str, bytes]) -> None:
    """Read a file, and prepare what could be read of it."""
    name, content = case
    with contextlib.suppress(TracekitError):
        prepare_run(Trace(tuple(decode_ranks(io.BytesIO(content), name))))


def damage(name: str, places: list[tuple[float, int, bytes]]) -> tuple[str, bytes]:
    """Return the case of a good file with some pieces replaced."""
    return name, apply_cuts(make_base(name), places)


def load(content: bytes) -> tuple[str, bytes]:
    """Read a kept case: the name, and behind the first line end the content."""
    name, _, rest = content.partition(b"\n")
    return name.decode(), rest


TARGET = Target(
    name="foreign_files",
    cases=st.builds(damage, st.sampled_from(BASES), cuts),
    check=check,
    load=load,
    dump=lambda case: case[0].encode() + b"\n" + case[1],
    suffix=".bin",
    examples=60,
)
