"""Small files that stand for large tables, as their texts or values are stored once: refused before they are built."""

import io

import polars as pl
import pytest

from tests.codes import has_code
from tests.ingest.formats.test_xplane import PlaneBuilder
from tracekit.errors import TraceTooLargeError
from tracekit.ingest.decode import decode_ranks
from tracekit.ingest.formats import FORMATS, NSIGHT, read_path, read_stream
from tracekit.ingest.formats.tables import ForeignFile
from tracekit.ingest.formats.xplane import load_messages

LIMIT_BYTES = 64 << 20


def test_a_long_name_of_many_kernels():
    space = load_messages()["XSpace"]()
    gpu = PlaneBuilder(space, "/device:GPU:0")
    for start in range(1000):
        gpu.event("Stream #1", "k" * 100_000, start, 1)
    content = space.SerializeToString()
    assert len(content) < 200_000
    with pytest.raises(TraceTooLargeError):
        decode_ranks(io.BytesIO(content), "host.xplane.pb", LIMIT_BYTES)


def test_a_table_of_one_value(tmp_path):
    pl.DataFrame({"id": [1], "value": ["k"]}).write_parquet(tmp_path / "StringIds.parquet")
    same = pl.DataFrame({"start": pl.repeat(1, 2_000_000, dtype=pl.Int64, eager=True)})
    same.write_parquet(tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    with pytest.raises(TraceTooLargeError):
        read_path(NSIGHT, ForeignFile(tmp_path, "report", LIMIT_BYTES), needs_gpu=True)


class Endless:
    """A device, or what a small compressed file unpacks to."""

    def __init__(self):
        self.given = 0

    def readinto(self, buffer):
        assert self.given < 16 << 20, "it is read on and on"
        self.given += len(buffer)
        return len(buffer)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.module)
def test_what_has_no_end_is_refused_at_the_memory_limit(form):
    stream = Endless()
    with pytest.raises(TraceTooLargeError, check=has_code("trace-too-large")):
        read_stream(form, stream, "trace.et", 4 << 20, needs_gpu=True)
    assert stream.given <= 5 << 20
