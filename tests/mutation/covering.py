"""Choose the tests that execute a line, by what was recorded once."""

import difflib
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import coverage

from tests.mutation.areas import find_area
from tests.mutation.recorder import FOLDER, PACKAGES, name_record

NOT_RECORDED = ("tests/benchmarks/", "tests/mutation/", "tests/web/test_kills.py")
"""Speeds, which a fault needn't change, and half a minute of killing servers."""
CLEAN = {name: "" for name in ("TRACEKIT_REAL_TRACES", "TRACEKIT_RECORDED_SAMPLES")}


@dataclass(frozen=True)
class Test:
    """A test function, of all its parameters.

    Attributes:
        node: ``FILE::NAME``, as pytest takes it.
        seconds: That it took when recorded.
        is_own: Whether it is in the folder of the area of the fault.
    """

    node: str
    seconds: float
    is_own: bool


def list_test_files(root: Path) -> list[str]:
    """Return the test files that are recorded."""
    found = (path.relative_to(root).as_posix() for path in sorted((root / "tests").rglob("test_*.py")))
    return [path for path in found if not path.startswith(NOT_RECORDED)]


def record(root: Path, folder: Path) -> None:
    """Run the test files that changed since they were recorded, under coverage.py, in one process."""
    stale = [path for path in list_test_files(root) if _read_digest(folder, path) != _digest(root / path)]
    if not stale:
        return
    print(f"recording {len(stale)} test files, once", file=sys.stderr)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.recorder", *stale]
    subprocess.run(command, cwd=root, env=make_environment() | {FOLDER: str(folder)}, stdout=sys.stderr, check=False)
    snapshot = keep_source(root, folder)
    for path in stale:
        if name_record(folder, path, ".json").exists():
            written = {"digest": _digest(root / path), "source": snapshot.name}
            name_record(folder, path, ".of.json").write_text(json.dumps(written))


def make_environment() -> dict[str, str]:
    """Return the environment of the tests: no real traces, so that tests stand by themselves."""
    return {name: value for name, value in os.environ.items() if name not in CLEAN} | {"PYTHONPATH": "."}


def keep_source(root: Path, folder: Path) -> Path:
    """Keep the modules as they are while recorded, to find their lines again after edits."""
    digest = hashlib.sha256()
    modules = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    for path in modules:
        digest.update(path.read_bytes())
    kept = folder / "source" / digest.hexdigest()[:12]
    for path in modules:
        copy = kept / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return kept


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_digest(folder: Path, path: str) -> str | None:
    kept = name_record(folder, path, ".of.json")
    return str(json.loads(kept.read_text())["digest"]) if kept.exists() else None


def choose_tests(root: Path, folder: Path, path: str, line: int, most_seconds: float) -> list[Test]:
    """Return the tests that may notice a fault, those of its own area first, cheap ones of many files.

    Those that execute the line; if no test is seen to (compiled code, other processes, what runs at import), those that
    execute anything of the file; else all of the area's own.

    Args:
        root: Of the repository.
        folder: With the records.
        path: Of the module, from the root.
        line: Of the fault.
        most_seconds: Sum over the chosen tests, of each of own tests and others.
    """
    own = find_area(path).tests
    for reached in (lambda lines, new: new.get(line), lambda lines, new: any(lines.values()), lambda lines, new: True):
        found = []
        for test_file in list_test_files(root):
            if not name_record(folder, test_file, ".json").exists():
                continue
            seconds = json.loads(name_record(folder, test_file, ".json").read_text())
            lines, renumbered = read_lines(root, folder, test_file, path)
            if not (lines or test_file.startswith(own)):
                continue
            hit = reached(lines, renumbered)
            if not hit:
                continue
            names = hit if isinstance(hit, list) else [""]
            is_own = test_file.startswith(own)
            chosen = seconds if "" in names else names
            found += [Test(f"{test_file}::{name}", seconds.get(name, 0.0), is_own) for name in chosen]
        if found:
            return list(_spend(found, most_seconds))
    return []


def _spend(tests: Iterable[Test], most_seconds: float) -> Iterator[Test]:
    """Yield own tests, then others: the cheapest of each file, then the next of each, until the seconds are spent."""
    spent, taken = {True: 0.0, False: 0.0}, Counter[str]()
    ranked = []
    for test in sorted(tests, key=lambda test: test.seconds):
        file = test.node.partition("::")[0]
        ranked.append((not test.is_own, taken[file], test.seconds, test.node, test))
        taken[file] += 1
    for *_, test in sorted(ranked):
        spent[test.is_own] += test.seconds
        if spent[test.is_own] <= most_seconds:
            yield test


@cache
def read_lines(
    root: Path, folder: Path, test_file: str, path: str
) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """Return contexts by line of a module, as numbered when recorded and as numbered now."""
    data = coverage.CoverageData(str(name_record(folder, test_file, ".db")))
    data.read()
    lines = data.contexts_by_lineno(path) if path in data.measured_files() else {}
    about = name_record(folder, test_file, ".of.json")
    if not lines or not about.exists():
        return lines, lines
    kept = folder / "source" / json.loads(about.read_text())["source"] / path
    return lines, {new: lines[old] for old, new in match_lines(kept, root / path).items() if old in lines}


@cache
def match_lines(old: Path, new: Path) -> dict[int, int]:
    """Return the present number of each line of an older file that is still there."""
    blocks = difflib.SequenceMatcher(
        a=old.read_text().splitlines(), b=new.read_text().splitlines(), autojunk=False
    ).get_matching_blocks()
    return {block.a + i + 1: block.b + i + 1 for block in blocks for i in range(block.size)}
