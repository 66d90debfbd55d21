"""Closed streams, interrupts, little memory, links, and files of other users."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tracekit
from tracekit.cli.process import PLAIN_ERRORS
from tracekit.ingest import cache
from tracekit.messages.traces import CACHE_NOT_PRIVATE
from tracekit.testing import TraceBuilder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path):
    """Start the command as a shell does; gives the process."""

    def begin(*args, limit_bytes=None, close=(), **options):
        def prepare():
            for descriptor in close:
                os.close(descriptor)
            if limit_bytes:
                import resource

                resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        command = [sys.executable, "-m", "tracekit", *map(str, args)]
        return subprocess.Popen(command, env=environment, preexec_fn=prepare, **pipes)

    return begin


@pytest.mark.parametrize("args", [("gpus", "--json"), ("--version",)])
def test_a_closed_stdout_is_an_error(args, start):
    process = start(*args, close=(1,), stdout=None)
    _, err = process.communicate()
    assert (process.returncode, err.count("\n")) == (1, 1)


@pytest.mark.heavy
def test_a_file_is_written_though_stdout_is_closed(start, trace, tmp_path):
    output = tmp_path / "report.json"
    process = start("report", trace, "-o", output, close=(1,), stdout=None)
    process.communicate()
    assert process.returncode == 1
    assert json.loads(output.read_text())["schema_version"] == 1
    silent = start("export", trace, "-o", tmp_path / "x.csv", close=(0, 1, 2), stdout=None, stderr=None)
    silent.communicate()
    assert silent.returncode == 0
    assert (tmp_path / "x.csv").read_text().startswith("rank") or (tmp_path / "x.csv").stat().st_size


@pytest.mark.parametrize("limit_mib", [300, 600])
def test_a_limit_that_the_libraries_do_not_survive_is_one_line(limit_mib, start, trace):
    process = start("info", trace, limit_bytes=limit_mib << 20)
    out, err = process.communicate()
    assert (process.returncode, out, err.count("\n")) == (1, "", 1)
    assert "[memory-limit-low]" in err


@pytest.mark.parametrize("after_s", [0.0, 0.2])
def test_an_interrupt_while_importing_ends_silently(after_s, start, trace):
    process = start("predict", trace, "--gpu", "h100-sxm")
    # Where Python itself starts, it has no handler of ours: the first import of tracekit is waited for.
    while b"tracekit" not in Path(f"/proc/{process.pid}/cmdline").read_bytes() or not _catches_interrupts(process.pid):
        time.sleep(0.005)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode in (130, 0)  # a quick machine is through
    assert err == ""


@pytest.mark.parametrize(("command", "expected"), [("gpus", 0), ("gpus no-such-gpu", 1), ("gpus --no-such-option", 2)])
def test_an_interrupt_after_all_is_written_changes_nothing(command, expected):
    script = (
        "import atexit, os, signal, sys; atexit.register(os.kill, os.getpid(), signal.SIGINT); "
        f"sys.argv = {['tracekit', *command.split()]}; from tracekit.cli.app import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == expected
    assert "Traceback" not in done.stderr


def _catches_interrupts(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    is_caught = bool(caught & 1 << (signal.SIGINT - 1))
    maps = Path(f"/proc/{pid}/maps").read_text()
    return is_caught and ("_datetime" in maps or "_json" in maps or "_decimal" in maps)


def test_an_error_that_an_interrupt_caused_is_an_interrupt(run, monkeypatch, tmp_path):
    def fail(*args, **options):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ImportError("numpy.core.multiarray failed to import") from None

    monkeypatch.setattr("tracekit.ingest.load", fail)
    monkeypatch.setattr("tracekit.interrupts._interrupted", False)
    # A shell's background jobs ignore it.
    handlers = [signal.signal(signal.SIGINT, signal.default_int_handler)]
    try:
        code, _, err = run("info", tmp_path)
    finally:
        signal.signal(signal.SIGINT, handlers[0])
    assert (code, err) == (130, "")


def test_an_output_through_links_keeps_them(run, trace, tmp_path):
    (tmp_path / "deep").mkdir()
    target, link, second = tmp_path / "deep" / "x.csv", tmp_path / "link.csv", tmp_path / "second.csv"
    link.symlink_to("deep/x.csv")
    second.symlink_to("link.csv")
    assert run("export", trace, "-o", second)[0] == 0
    assert (link.is_symlink(), second.is_symlink(), target.is_file()) == (True, True, True)
    target.write_text("old")
    assert run("export", trace, "-o", second)[0] == 1
    assert target.read_text() == "old"
    assert run("export", trace, "-f", "-o", second)[0] == 0
    assert second.is_symlink()
    assert target.read_text() != "old"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name.startswith(".")) == []


def test_links_in_circles_or_to_nowhere_are_refused(run, trace, tmp_path):
    (tmp_path / "a.csv").symlink_to("b.csv")
    (tmp_path / "b.csv").symlink_to("a.csv")
    (tmp_path / "c.csv").symlink_to("missing/c.csv")
    for name in ("a.csv", "c.csv"):
        code, _, err = run("export", trace, "-f", "-o", tmp_path / name)
        assert (code, err.count("\n")) == (1, 1)
        assert (tmp_path / name).is_symlink()


@pytest.mark.parametrize("letter", ["a", "é", "漢"])
def test_names_of_255_bytes_work_for_inputs_and_outputs(letter, run, trace, tmp_path):
    for form in ("json", "csv"):
        stem = letter * ((255 - len(form) - 1) // len(letter.encode()))
        code, _, err = run("export", trace, "-f", "-o", tmp_path / f"{stem}.{form}")
        assert code == 0, err
    stem = letter * (250 // len(letter.encode()))
    long = TraceBuilder().kernel("gemm", 20, 10, launch=0).save(tmp_path / f"{stem}.json")
    for verb in ("info", "doctor"):
        assert run(verb, long)[0] == 0
    assert run("redact", long)[0] == 0
    assert len(list(tmp_path.glob("*.redacted.json.gz"))) == 1


OTHERS = {"anybody": lambda path: path.chmod(0o777), "another user": lambda path: os.chown(path, 12345, 12345)}


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("above", [0, 1])
def test_the_cache_of_others_is_not_used_and_that_is_said(above, who, trace, tmp_path, monkeypatch):
    if who == "another user" and os.getuid():
        pytest.skip("only root can give files away")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "SMALLEST_FILE_BYTES", 0)
    tracekit.load(trace)
    assert cache.measure_usage().entries == 1
    directory = (cache.get_directory(), cache.get_directory().parent)[above]
    OTHERS[who](directory)
    read = []
    monkeypatch.setattr(cache, "load_entry", lambda *args: read.append(args))
    found = tracekit.load(trace)
    assert CACHE_NOT_PRIVATE(path=str(directory)) in found.warnings
    assert read == []
    assert cache.measure_usage().entries == 1


def test_an_entry_of_another_user_is_not_used(trace, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "SMALLEST_FILE_BYTES", 0)
    tracekit.load(trace)
    [entry] = cache.get_directory().iterdir()
    entry.chmod(0o777)
    assert cache.load_entry(entry.name, 1 << 30) is None


STORED = {"format": 1, "gpu": "l4", "origin": "bench", "date": "2026-01-01", "software": "", "kernels": []}
KERNEL = {"family": "gemm", "dtype": "fp16", "m": 64.0, "n": 64.0, "k": 64.0, "batch": 1.0, "measured_us": 5.0}
DAMAGED = {
    "empty": b"",
    "cut": json.dumps(STORED).encode()[:40],
    "not UTF-8": b'{"format": 1, "gpu": "\xff"}',
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "null": b"null",
    "of another GPU": json.dumps(STORED | {"gpu": "t4", "kernels": [KERNEL]}).encode(),
    "no kernels": json.dumps(STORED).encode(),
    "an unknown family": json.dumps(STORED | {"kernels": [KERNEL | {"family": "nonsense"}]}).encode(),
    "an unknown precision": json.dumps(STORED | {"kernels": [KERNEL | {"dtype": "fp999"}]}).encode(),
    "negative times": json.dumps(STORED | {"kernels": [KERNEL | {"measured_us": -1.0}]}).encode(),
    "endless times": json.dumps(STORED | {"kernels": [KERNEL | {"measured_us": 1e300}]}).encode(),
    "texts for numbers": json.dumps(STORED | {"kernels": [KERNEL | {"m": "64"}]}).encode(),
}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The file of a GPU's calibration."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = tmp_path / "tracekit" / "calibrations" / "l4.json"
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_calibration_is_named_with_the_way_out(kind, run, kept):
    kept.write_bytes(DAMAGED[kind])
    code, out, err = run("calibrate", "--list")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert str(kept) in err
    assert "--remove l4" in err


def test_the_ways_out_of_a_damaged_calibration_work(run, trace, kept):
    kept.write_bytes(b"")
    assert run("predict", trace, "--gpu", "l4")[0] == 1
    assert run("predict", trace, "--gpu", "l4", "--no-calibration")[0] == 0
    assert run("calibrate", "--remove", "l4")[0] == 0
    assert run("calibrate", "--list")[0] == 0


def test_an_encoding_without_a_character_gets_one_that_reads_alike():
    assert "1–2 ms → 3 µs ≈ 4".encode("ascii", PLAIN_ERRORS) == b"1-2 ms -> 3 us ~ 4"
    assert "µ– 日".encode("latin-1", PLAIN_ERRORS) == b"\xb5- ?"
