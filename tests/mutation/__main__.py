"""How many random faults the tests notice: ``python -m tests.mutation --count 150 --seed 11 [--area web]``.

Faults are drawn by area and put, one at a time, into a copy of the tree; the tests that execute the line run until one
fails. Outcomes are written as they come to FOLDER/SEED-AREAS.jsonl: the same command goes on where it was ended. Begin
it with `nice`: a fault takes 10 s to 2 minutes. The first run records which test executes which line: half an hour.

No library does it. mutmut 3.8 copes with the layout, but forks a process that has run tests: from the 30th fault on
each child waited for ever for polars' threads (23 of 53 tried in `tracekit/comm`), and it makes all faults (3,195 in
that folder) rather than draw some. cosmic-ray 8.7 runs one command for all, with no choice of tests by coverage.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutation.areas import AREAS, draw_faults
from tests.mutation.covering import Test, choose_tests, record
from tests.mutation.trial import copy_tree, run_tests, try_fault

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Draw the faults, try each, and print the table by area."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Put random faults into the code.")
    parser.add_argument("--count", type=int, default=150, help="faults (150)")
    parser.add_argument("--seed", type=int, default=0, help="other faults for another number (0)")
    parser.add_argument("--area", action="append", choices=AREAS, help="only of these areas; may be repeated")
    parser.add_argument("--most-seconds", type=float, default=60, help="of own tests, and of others (60)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutation", help="of the copy, records and outcomes")
    options = parser.parse_args(arguments)
    names = options.area or list(AREAS)
    copy, records = options.folder / "tree", options.folder / "records"
    copy_tree(ROOT, copy)
    record(copy, records)
    outcomes = options.folder / f"{options.seed}-{'-'.join(names) if options.area else 'all'}.jsonl"
    known = {(row["path"], row["line"], row["after"]): row for row in read_rows(outcomes)}
    rows = []
    for name, fault in draw_faults(copy, names, options.count, options.seed):
        row = known.get((fault.path, fault.line, fault.after))
        if row is None:
            tests = choose_tests(copy, records, fault.path, fault.line, options.most_seconds)
            outcome = try_fault(copy, fault, tests)
            about = {"path": fault.path, "line": fault.line, "kind": fault.kind, "before": fault.before}
            row = {"area": name, **about, "after": fault.after, **asdict(outcome)}
            with outcomes.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(describe(row), file=sys.stderr, flush=True)
        rows.append(row)
    print("\n".join(tabulate(rows)))
    print("\n".join(describe(row) for row in rows if not row["noticed"]))
    for broken in find_broken(copy, rows):
        print(f"fails without any fault: {broken}")
    return 0


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the outcomes written so far."""
    if path.exists():
        yield from (json.loads(line) for line in path.read_text().splitlines())


def describe(row: dict[str, Any]) -> str:
    """Write one outcome in a line."""
    said = f"noticed by {row['by']}" if row["noticed"] else f"NOT NOTICED by {row['tests']} tests"
    place = f"{row['path']}:{row['line']}"
    return f"{row['seconds']:5.0f} s  {place} {row['kind']}: {row['before']!r} -> {row['after']!r}: {said}"


def tabulate(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table: noticed faults by area."""
    areas: defaultdict[str, list[bool]] = defaultdict(list)
    for row in rows:
        areas[row["area"]].append(row["noticed"])
        areas["all"].append(row["noticed"])
    yield "| area | faults | noticed | % |"
    yield "|---|--:|--:|--:|"
    for name in [name for name in (*AREAS, "all") if name in areas]:
        noticed = areas[name]
        yield f"| {name} | {len(noticed)} | {sum(noticed)} | {100 * sum(noticed) / len(noticed):.0f} |"


def find_broken(copy: Path, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the tests that noticed a fault, yet fail on the sound copy."""
    named = sorted({row["by"] for row in rows if "::" in row["by"]})
    while named:
        by = run_tests(copy, [Test(node, 60.0, True) for node in named])
        if not by:
            return
        yield by
        named = [node for node in named if node != by] if by in named else []


if __name__ == "__main__":
    sys.exit(main())
