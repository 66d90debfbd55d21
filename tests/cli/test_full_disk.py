"""Every write, open, rename and sync made to fail in turn: nothing half written, nothing lost, one clear line."""

import errno
import shutil

import polars as pl
import pytest

import tracekit
from tests.codes import has_code
from tests.failing_disk import fail_in_turn, failing_disk
from tracekit import calibration, output_files
from tracekit.calibration import Calibration
from tracekit.errors import OutputError
from tracekit.ingest import cache
from tracekit.testing import TraceBuilder


@pytest.fixture
def source(tmp_path):
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    return builder.kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10).save(tmp_path / "trace.json.gz")


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    return path


def list_files(directory):
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


OUTPUTS = {"json": "report", "csv": "export", "gz": "redact"}
"""A verb for each way that files come about."""


@pytest.mark.parametrize("form", OUTPUTS)
def test_a_command_whose_output_fails_leaves_the_old_file_and_one_line(form, source, disk, run):
    output, runs = disk / f"x.{form}", []

    def prepare():
        shutil.rmtree(disk)
        disk.mkdir()
        output.write_bytes(b"old")

    def action():
        runs.append((*run(OUTPUTS[form], source, "-o", output, "-f"), output.read_bytes()))

    def check(operation, error):
        code, _, err, content = runs[-1]
        if code == 0:  # what failed came behind the rename
            assert len(content) == len(runs[0][-1]) > 100
        else:
            assert (code, err.count("\n"), content) == (1, 1, b"old")
            assert "bug in tracekit" not in err
        if error == errno.EIO and operation != "unlink":  # of a disk that works otherwise nothing is left
            assert list_files(disk) == [output.name]

    operations = fail_in_turn(disk, prepare, action, check, in_both_ways=False)
    assert runs[0][0] == 0
    assert {"open", "write", "fsync", "replace"} <= set(operations)


def test_what_is_left_of_a_failed_output_is_removed_where_the_disk_still_works(disk):
    def write():
        with output_files.write_atomically(disk / "x") as partial:
            partial.write_bytes(b"new" * 1000)

    with failing_disk(disk) as counted:
        write()
    for fail_at, operation in enumerate(counted.operations):
        (disk / "x").write_bytes(b"old")
        with failing_disk(disk, fail_at):
            try:
                write()
                assert (disk / "x").read_bytes() == b"new" * 1000
            except OutputError:
                assert (disk / "x").read_bytes() == b"old"
        assert list_files(disk) == ["x"] or operation == "unlink"


def test_of_several_outputs_none_is_written_where_one_fails_before_the_renames(disk):
    contents = {disk / f"{'x' * 80}{number}": b"new" * 1000 for number in range(3)}
    with failing_disk(disk) as counted:
        output_files.write_together(contents)
    assert {path.read_bytes() for path in contents} == {b"new" * 1000}
    first_rename = counted.operations.index("replace")
    assert first_rename >= len({"open", "write", "fsync"}) * len(contents)
    for fail_at in range(first_rename):
        for path in contents:
            path.write_bytes(b"old")
        with failing_disk(disk, fail_at), pytest.raises(OutputError, check=has_code("output-not-written")):
            output_files.write_together(contents)
        assert {path.read_bytes() for path in contents} == {b"old"}


def test_a_calibration_that_is_not_kept_leaves_the_older_one(disk, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(disk))
    row = {"family": "gemm", "dtype": "fp16", "m": 64.0, "n": 64.0, "k": 64.0, "batch": 1.0, "measured_us": 5.0}
    rows = pl.DataFrame([row], schema_overrides=calibration.KERNEL_COLUMNS)
    kernels = pl.concat([pl.DataFrame(schema=calibration.KERNEL_COLUMNS), rows], how="diagonal")
    old, new = (Calibration("l4", "bench", date, "", kernels) for date in ("2026-01-01", "2026-02-02"))
    failed = []

    def prepare():
        shutil.rmtree(disk)
        disk.mkdir()
        calibration.save(old)

    def action():
        try:
            calibration.save(new)
        except OutputError as error:
            failed.append(error)

    def check(operation, error):
        [kept] = calibration.load_all()
        assert kept.date in ("2026-01-01", "2026-02-02")

    fail_in_turn(disk, prepare, action, check)
    assert len(failed) > 4


def test_a_cache_that_fails_is_no_worse_than_none(source, disk, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
    monkeypatch.setattr(cache, "SMALLEST_FILE_BYTES", 0)
    expected = tracekit.load(source, cache=False).rank()
    found = []

    def prepare():
        shutil.rmtree(disk)
        disk.mkdir()

    def action():
        found.append(tracekit.load(source).rank())

    def check(operation, error):
        again = tracekit.load(source).rank()
        for rank in (found[-1], again):
            assert rank.warnings == expected.warnings
            assert all(rank.tables[name].equals(table) for name, table in expected.tables.items())

    operations = fail_in_turn(disk, prepare, action, check, in_both_ways=False)
    assert operations.count("write") > 8
