"""What do damaged, hostile and endless inputs end in?

Each case runs a command: it must end in a result, or in one line that says what is wrong, with the exit code that is
documented. A traceback, a second line, a warning of Python, a character that acts on a terminal, a figure that is
negative or endless, or more than a minute is a fault.
"""

import contextlib
import copy
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from tests.validation.study import format_table
from tracekit.cli.app import main
from tracekit.escape import to_lines
from tracekit.testing import TraceBuilder

INPUTS = ()
HOSTILE_FILES = Path(__file__).parents[2] / "ingest" / "hostile"
MAX_SECONDS = 60.0
HEADINGS = ("kind", "cases", "result", "refused in a line", "faults", "slowest, s")


@dataclass(frozen=True)
class Case:
    """A command to run.

    Attributes:
        name: What is special.
        content: The trace; ``None`` if ``arguments`` name one.
        arguments: The command, with the trace's place marked by ``TRACE``.
        file_name: Name of the trace's file.
        environment: Variables of a process of its own; ``None`` runs it in this one.
        shell: What a shell does in front of the command, and with its output.
    """

    name: str
    content: bytes | None = None
    arguments: tuple[str, ...] = ("predict", "TRACE", "--gpu", "h100-sxm", "--json")
    file_name: str = "trace.json"
    environment: Mapping[str, str] | None = None
    shell: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Outcome:
    """What a command ended in.

    Attributes:
        fault: What is wrong with it; empty if nothing is.
        is_refused: Whether it ended in one line.
        seconds: How long it took.
    """

    fault: str
    is_refused: bool
    seconds: float


def run() -> str:
    """Return a row for each kind of input."""
    rows: list[tuple[str, tuple[int, ...], str]] = []
    faults: list[str] = []
    for kind, build in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            outcomes = {case.name: run_case(case, Path(folder)) for case in build(Path(folder))}
        refused = sum(one.is_refused for one in outcomes.values())
        wrong = {name: one.fault for name, one in outcomes.items() if one.fault}
        faults += [f"- {kind}, {name}: {fault}" for name, fault in wrong.items()]
        results = len(outcomes) - refused - len(wrong)
        slowest = max(one.seconds for one in outcomes.values())
        rows.append((kind, (len(outcomes), results, refused, len(wrong)), f"{slowest:.1f}"))
    counts = [sum(column) for column in zip(*(row[1] for row in rows), strict=True)]
    shown = [(kind, *map(str, found), slowest) for kind, found, slowest in (*rows, ("all", tuple(counts), ""))]
    listed = "\n".join(faults) or "No fault."
    return f"# What hostile inputs end in\n\n{format_table(HEADINGS, shown)}\n\n{listed}\n"


def run_case(case: Case, folder: Path) -> Outcome:
    """Run a case, and judge what it ends in."""
    path = folder / case.file_name
    if case.content is not None:
        path.write_bytes(case.content)
    arguments = [str(path) if word == "TRACE" else word for word in case.arguments]
    begun = time.perf_counter()
    code, out, err = run_here(arguments) if case.environment is None else run_apart(case, arguments)
    seconds = time.perf_counter() - begun
    fault = find_fault(code, out, err) or ("took too long" if seconds > MAX_SECONDS else "")
    return Outcome(fault, not fault and code in (1, 2), seconds)


def run_here(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code and what it printed."""
    printed, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(printed, "utf-8")
    given, sys.argv = sys.argv, ["tracekit", *arguments]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("always")
            try:
                main()
            except SystemExit as stop:
                code = stop.code
    finally:
        sys.argv = given
    out.flush()
    return int(code or 0), printed.getvalue().decode(), err.getvalue()


def run_apart(case: Case, arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in a process of its own, begun by a shell."""
    before, behind = case.shell
    command = f'{before} "$@" {behind}'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(case.environment or {})}
    process = subprocess.run(
        ["bash", "-c", command, "bash", sys.executable, "-m", "tracekit", *arguments],
        capture_output=True,
        env=environment,
        check=False,
    )
    return process.returncode, process.stdout.decode(), process.stderr.decode()


def find_fault(code: int, out: str, err: str) -> str:
    """Return what is wrong with what a command ended in; empty if nothing is."""
    if code not in (0, 1, 2, 130):
        return f"exit code {code}"
    if "Traceback" in err or "Warning:" in err:
        return "a traceback or a warning of Python"
    if code == 1 and err.count("\n") != 1:
        return f"{err.count(chr(10))} lines on stderr"
    if to_lines(out + err) != out + err:
        return "a character that acts on a terminal"
    return find_absurd_figure(json.loads(out)) if out.startswith("{") else ""


def find_absurd_figure(document: Mapping[str, Any]) -> str:
    """Return a figure of a prediction that can't be; empty without one."""
    for target in document.get("targets", ()):
        figures = [target[key] for key in ("step_time_us", "low_us", "high_us", "kernel_time_us", "idle_us")]
        shares = target["coverage"].values()
        if not all(isfinite(figure) and figure >= 0 for figure in figures):
            return "a figure that is negative or endless"
        if abs(sum(shares) - 100) > 1e-6:
            return "coverage that does not add up to 100 %"
    return ""


def build_document() -> dict[str, Any]:
    """Return a trace of three steps of a product and a sum."""
    builder = TraceBuilder()
    for step, start in enumerate((0, 1000, 2000)):
        builder.step(step, start, 900)
        builder.op("aten::mm", start + 10, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
        builder.kernel("ampere_sgemm_128x64_nn", start + 50, 100, launch=start + 20, grid=[8, 4, 1], block=[128, 1, 1])
        builder.op("aten::add", start + 200, 30, dims=[[512, 512], [512, 512], []], types=["float", "float", "Scalar"])
        builder.kernel("vectorized_elementwise_kernel<4, float>", start + 250, 50, launch=start + 210)
        builder.call("cudaDeviceSynchronize", start + 300, 10)
    document: dict[str, Any] = json.loads(builder.to_json())
    return document


def encode(document: object) -> bytes:
    """Return JSON, with the numbers that it has not, too."""
    return json.dumps(document).encode()


def change_events(key: str, value: Any, category: str = "kernel", *, in_arguments: bool = False) -> Case:
    """Return the case of a trace whose events of a category have another value."""
    document = build_document()
    for event in document["traceEvents"]:
        if event.get("cat") == category:
            (event["args"] if in_arguments else event)[key] = value
    return Case(f"{key} of {category} {str(value)[:30]}", encode(document))


def list_damaged_files(folder: Path) -> Iterator[Case]:
    """Yield truncated, flipped and wrongly packed files."""
    text = encode(build_document())
    packed = gzip.compress(text, mtime=0)
    for kind, data in (("text", text), ("gzip", packed)):
        for part in (1, 5, 10, 50, 90, 95, 99):
            yield Case(f"{kind} cut at {part} %", data[: len(data) * part // 100])
        for at in range(1, 12):
            place = at * len(data) // 12
            flipped = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
            yield Case(f"{kind} with a flipped bit at {at}/12", flipped)
    yield Case("gzip and garbage", packed + b"garbage")
    yield Case("gzip twice", gzip.compress(packed))
    yield Case("two gzip members", gzip.compress(text[:500]) + gzip.compress(text[500:]))
    yield Case("zstd magic alone", b"\x28\xb5\x2f\xfd")


def list_documents(folder: Path) -> Iterator[Case]:
    """Yield files that are no trace, or more than one."""
    text = encode(build_document())
    odd = {"BOM": b"\xef\xbb\xbf" + text, "UTF-16": text.decode().encode("utf-16"), "empty": b"", "blank": b" \n"}
    odd |= {"null": b"null", "list": b"[]", "number": b"1", "text": b'"x"', "brace": b"{", "lines": text + b"\n" + text}
    odd |= {"second document": text + text, "garbage behind": text + b"garbage", "closing": text + b"]}"}
    odd |= {f"events are {kind}": b'{"traceEvents":' + value + b"}" for kind, value in (
        ("null", b"null"), ("a number", b"1"), ("text", b'"x"'), ("an object", b"{}"), ("numbers", b"[1,2]"),
    )}  # fmt: skip
    odd |= {
        "deep": b"[" * 100_000,
        "deep metadata": b'{"a":' + b"[" * 100_000,
        "keys twice": b"{" + text[1:-1] + b"," + text[1:],
    }
    odd |= {"blanks": b" " * (80 << 20), "zeros": bytes(80 << 20), "brackets": b"[" * (20 << 20)}
    yield from (Case(name, content) for name, content in odd.items())


def list_bytes(folder: Path) -> Iterator[Case]:
    """Yield texts and numbers that JSON has not, or that no number type holds."""
    text = encode(build_document())
    name = b"ampere_sgemm_128x64_nn"
    for kind, value in {
        "invalid UTF-8": b"\xff\xfe", "lone surrogate": b"\\ud800", "NUL": b"\\u0000", "raw NUL": b"\0",
        "ESC": b"\x1b[2J", "directions": "\u202e".encode(), "quote": b'"', "backslash": b"\\",
        "markup": b"<script>alert(1)</script>", "formula": b"=1+1", "1 MB": b"x" * (1 << 20),
    }.items():  # fmt: skip
        yield Case(f"name with {kind}", text.replace(name, value + name))
    for value in (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"9" * 400,
        b"9" * 5000,
        b"-0",
        b"1e-999",
        b"null",
        b'"x"',
    ):
        yield Case(
            f"duration {value[:12].decode()} of {len(value)} characters",
            text.replace(b'"dur": 100', b'"dur": ' + value),
        )
        yield Case(
            f"time {value[:12].decode()} of {len(value)} characters",
            text.replace(b'"ts": ', b'"ts": ' + value + b', "was": ', 7),
        )


def list_times(folder: Path) -> Iterator[Case]:
    """Yield durations and time stamps that can't be."""
    values: tuple[Any, ...] = (-1, 0, 1e12, 9e15, 1e18, -1e18, [], {}, True)
    for value in values:
        yield change_events("dur", value)
        yield change_events("ts", value)
        yield change_events("ts", value, "cpu_op")


def list_arguments(folder: Path) -> Iterator[Case]:
    """Yield ids, sizes and shapes that can't be."""
    values: tuple[Any, ...] = (-1, 0, 2**31, 2**63, 2**70, "x", None, [-8, -8, 1], [2**32, 1, 1], [1], {}, 1.5)
    for key in ("correlation", "stream", "device", "External id", "grid", "block"):
        yield from (change_events(key, value, in_arguments=True) for value in values)
    large: tuple[Any, ...] = ([[2**31, 2**31]], [[2**63]], [[1] * 500], [[-1, 2]], [[0]])
    wrong: tuple[Any, ...] = ([[1.5]], [["x"]], [[1], [2, 3]], "x", {})
    for value in (*large, *wrong):
        yield change_events("Input Dims", value, "cpu_op", in_arguments=True)


def list_jobs(folder: Path) -> Iterator[Case]:
    """Yield ranks, worlds and steps that can't be."""
    document = build_document()
    values: tuple[Any, ...] = (-1, 2**31, 2**70, 1.5, "x", [], True)
    for value in values:
        for key in ("rank", "world_size"):
            job = {"rank": 0, "world_size": 2, key: value}
            yield Case(f"{key} {value}", encode(document | {"distributedInfo": job}))
    for name in ("ProfilerStep#-1", f"ProfilerStep#{'9' * 400}", "ProfilerStep#x", "ProfilerStep#1"):
        changed = copy.deepcopy(document)
        for event in changed["traceEvents"]:
            if event.get("cat") == "user_annotation":
                event["name"] = name
        yield Case(f"steps named {name[:20]}", encode(changed))


def list_large_inputs(folder: Path) -> Iterator[Case]:
    """Yield bombs, and inputs of many members, ranks, names and streams."""
    document, events = build_document(), []
    blanks = b" " * (100 << 20)
    yield Case("100 MB of blanks in gzip", gzip.compress(blanks))
    for members in (500, 2000, 10_001):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for number in range(members):
                archive.writestr(f"{number}.json", "{}")
        yield Case(f"zip of {members:,} members", buffer.getvalue())
    for number in range(20_000):
        args = {"device": 0, "stream": number % 2000, "correlation": number}
        event = {"ph": "X", "cat": "kernel", "name": f"kernel_{number}", "pid": 0, "tid": 7, "dur": 1, "args": args}
        events.append(event | {"ts": 10 + 2 * number})
    yield Case("20,000 names on 2,000 streams", encode(document | {"traceEvents": events}))
    (folder / "ranks").mkdir()
    for rank in range(32):
        one = document | {"distributedInfo": {"rank": rank, "world_size": 32}}
        (folder / "ranks" / f"rank{rank}.json").write_bytes(encode(one))
    yield Case("32 ranks", None, ("info", str(folder / "ranks")))
    if Path("/dev/zero").exists():
        yield Case("/dev/zero", None, ("info", "/dev/zero"))


def list_kept_files(folder: Path) -> Iterator[Case]:
    """Yield the files that once were faults, for every verb."""
    for file in sorted(HOSTILE_FILES.iterdir()):
        for verb in ("info", "report", "doctor", "predict"):
            to = ("--gpu", "h100-sxm", "--json") if verb == "predict" else ()
            yield Case(f"{verb} {file.name}", None, (verb, str(file), *to))


def list_options(folder: Path) -> Iterator[Case]:
    """Yield options, descriptions and calibrations that can't be."""
    text = encode(build_document())
    predict = ("predict", "TRACE", "--gpu", "h100-sxm")
    options: dict[str, tuple[str, ...]] = {
        "--price": ("h100-sxm==2", "h100-sxm=２", "=2", "h100-sxm=nan", "x=1"),
        "--steps": ("1:", ":", "１", "-1", "99", "9" * 400),
        "--source-gpu": ("", " ", "x", "../x.toml"),
        "--cluster": ("", "x", "0x8xh100-sxm", f"{'9' * 5000}x8xh100-sxm@ndr400", "4x8xh100-sxm@ndr0"),
        "--what-if": ("", "x", "scale(", "scale(name=(, 2)", "scale(family=gemm, 1e999)", "remove(name='.*')"),
        "--host-speed": ("0", "-1", "nan", "１", "python=x"), "--unprofiled-step": ("1", "-1ms", "１ms", "0ms"),
        "--batch": ("0", "-1", "nan", "1e30"), "--dp": ("0", "-1", "x", "9" * 30), "--memory": ("0", "x", "1T", "1"),
    }  # fmt: skip
    for option, values in options.items():
        yield from (Case(f"{option} {value[:30]!r}", text, (*predict, option, value)) for value in values)
    for name, content in {
        "huge figure": "size_gb = 1e300", "deep": "a = " + "[" * 20_000, "digits": "a = " + "9" * 6000, "blank": "",
        "binary": "\0\1", "long": "#" * (2 << 20),
    }.items():  # fmt: skip
        file = folder / f"{name.replace(' ', '_')}.toml"
        file.write_text(content)
        yield Case(f"GPU file: {name}", None, ("gpus", str(file)))
        yield Case(f"cluster file: {name}", None, ("clusters", str(file)))
    (folder / "zero.toml").symlink_to("/dev/zero")
    yield Case("GPU file: /dev/zero", None, ("gpus", str(folder / "zero.toml")))


def list_names(folder: Path) -> Iterator[Case]:
    """Yield names of files that are long, odd, or lead nowhere."""
    text = encode(build_document())
    for name in ("a" * 250 + ".json", "line\nbreak.json", "\x1b[2J.json", " blank .json", "漢字.json", "[a]*.json"):
        yield Case(f"name {name[:20]!r}", text, file_name=name)
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "dangling.json").symlink_to("nowhere.json")
    for name in ("loop.json", "dangling.json", "missing.json", "a" * 300, "a/" * 2500, ""):
        yield Case(f"missing {name[:20]!r}", None, ("info", str(folder / name) if name else ""))


def list_surroundings(folder: Path) -> Iterator[Case]:
    """Yield processes with little of what others have."""
    text = encode(build_document())
    info = Case("", text, ("info", "TRACE"), environment={})
    for limit in ("-v 600000", "-v 200000", "-n 16", "-f 8"):
        yield replace(info, name=f"ulimit {limit}", shell=(f"ulimit {limit};", ""))
    yield replace(info, name="no home", environment={"HOME": "/nonexistent", "XDG_CACHE_HOME": "", "XDG_DATA_HOME": ""})
    yield replace(info, name="ASCII", environment={"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"})
    yield replace(info, name="closed stdin", shell=("", "<&-"))
    yield replace(info, name="closed stdout", shell=("", ">&-"))
    yield replace(info, name="full stdout", shell=("", ">/dev/full"))
    yield replace(info, name="a reader that leaves", shell=("", "| head -c 10; exit ${PIPESTATUS[0]}"))
    yield replace(info, name="interrupted", shell=("timeout --preserve-status -s INT 0.5", ""))


KINDS: Mapping[str, Callable[[Path], Iterator[Case]]] = {
    "files cut, flipped or packed wrongly": list_damaged_files,
    "documents that are no trace, or two": list_documents,
    "bytes and numbers that JSON lacks": list_bytes,
    "durations and time stamps": list_times,
    "ids, streams, grids, shapes": list_arguments,
    "ranks and steps": list_jobs,
    "bombs, many members, ranks, names": list_large_inputs,
    "files that once were faults, every verb": list_kept_files,
    "options, descriptions": list_options,
    "names of files": list_names,
    "surroundings of the process": list_surroundings,
}
