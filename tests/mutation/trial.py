"""Put one fault into a copy of the tree, and run the tests that may notice it."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.covering import Test, make_environment
from tests.mutation.mutators import Fault

MOST_MEMORY_BYTES = 8 << 30
SPARE_SECONDS = 60.0
FACTOR = 4.0
"""A run is ended after as many times what its tests took when recorded: a fault may loop for ever."""


@dataclass(frozen=True)
class Outcome:
    """What the tests said.

    Attributes:
        noticed: By a test that failed, or by the time.
        by: Which test, "time", or "" if none.
        tests: How many test functions were asked.
        seconds: That it took.
    """

    noticed: bool
    by: str
    tests: int
    seconds: float


def copy_tree(root: Path, copy: Path) -> None:
    """Copy what git knows, and what it doesn't ignore, to a folder of its own."""
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


def try_fault(copy: Path, fault: Fault, tests: Sequence[Test]) -> Outcome:
    """Run the tests until one fails; own ones first, the others if those pass."""
    began = time.monotonic()
    place = copy / fault.path
    sound = place.read_bytes()
    asked = 0
    try:
        place.write_text(fault.source)
        # A time of its own, or Python takes the bytecode of the sound file if size and second are the same.
        os.utime(place, (time.time() + 3600, time.time() + 3600 + os.getpid() % 997))
        for is_own in (True, False):
            chosen = [test for test in tests if test.is_own == is_own]
            asked += len(chosen)
            by = run_tests(copy, chosen)
            if by:
                return Outcome(True, by, asked, time.monotonic() - began)
    finally:
        place.write_bytes(sound)
        os.utime(place)
    return Outcome(False, "", asked, time.monotonic() - began)


def run_tests(copy: Path, tests: Sequence[Test]) -> str:
    """Return the first test that fails, "time" if they don't end, "" if all pass."""
    if not tests:
        return ""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.mutation.quick",
    ]
    limit = SPARE_SECONDS + FACTOR * sum(test.seconds for test in tests)
    process = subprocess.Popen(
        [*command, *(test.node for test in tests)],
        cwd=copy,
        env=make_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_limit_memory,
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        _end_group(process)
    if process.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
    return failed[1] if failed else f"pytest ended with {process.returncode}"


def _limit_memory() -> None:
    # Not of addresses, of which a browser reserves a terabyte.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))


def _end_group(process: subprocess.Popen[str]) -> None:
    """End what the tests started, too, such as servers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
