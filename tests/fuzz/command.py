"""Run the command line in this process and hold it to what it promises for every input."""

import contextlib
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fuzz.target import BrokenPromiseError
from tracekit.cli.app import main

ERROR_LINE = re.compile(r"tracekit: .+ \[[a-z0-9-]+\]\n", re.DOTALL)
FRAME = re.compile(r'File ".*?/((?:tracekit|predictors)/[^"]*)", line \d+, in (\w+)')
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: bytes
    err: str


def run_command(*arguments: str) -> Outcome:
    """Run ``tracekit``; any warning of Python ends it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = sys.argv
    sys.argv = ["tracekit", *arguments]
    code: object = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            main()
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = before
    assert isinstance(code, int)
    return Outcome(code, out.buffer.getvalue(), err.buffer.getvalue().decode())


@contextlib.contextmanager
def use_data_home(folder: str) -> Iterator[None]:
    """Let commands keep and find what they keep on this machine in a folder."""
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = folder
    try:
        yield
    finally:
        os.environ.pop("XDG_DATA_HOME")
        os.environ |= {} if before is None else {"XDG_DATA_HOME": before}


def check_command(*arguments: str, codes: tuple[int, ...] = (0, 1)) -> Outcome:
    """Run ``tracekit``, which has to end with a result, or with one line that says why not.

    Raises:
        BrokenPromiseError: It ends otherwise, or prints something that acts on a terminal.
    """
    outcome = run_command(*arguments)
    shown = f"tracekit {' '.join(arguments)}\nexit {outcome.code}\n{outcome.err[-4000:]}"
    if outcome.code not in codes:
        frames = FRAME.findall(outcome.err)
        kind = outcome.err.strip().splitlines()[-2:-1]
        raise BrokenPromiseError(f"exit {outcome.code}: {' '.join(kind)[:80]} in {frames[-1:]}", shown)
    if outcome.code == 0 and not outcome.out and "-o" not in arguments:
        raise BrokenPromiseError(f"{arguments[0]} prints nothing", shown)
    if outcome.code == 1 and not (ERROR_LINE.fullmatch(outcome.err) and outcome.err.count("\n") == 1):
        raise BrokenPromiseError(f"{arguments[0]} fails with something else than one line", shown)
    if outcome.code == 2 and not (ERROR_LINE.fullmatch(outcome.err) or outcome.err.startswith("Usage: ")):
        raise BrokenPromiseError(f"{arguments[0]} refuses options with something else than one line", shown)
    on_terminal = outcome.err if "--format" in arguments else outcome.err + outcome.out.decode(errors="replace")
    if CONTROL.search(on_terminal):
        raise BrokenPromiseError(f"{arguments[0]} prints control characters", shown)
    return outcome
