"""What faults are drawn from: the packages by area, and the folders of tests that are theirs."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutators import Fault, compiles, find_faults


@dataclass(frozen=True)
class Area:
    """A part of the program that one score is given to.

    Attributes:
        code: Folders and files, from the root of the repository.
        tests: Folders and files whose tests are asked first.
    """

    code: tuple[str, ...]
    tests: tuple[str, ...]


ROOT = Path(__file__).parents[2]
OTHER_TESTS = {
    "analysis": ("tests/replay", "tests/report"),
    "engine": ("tests/fleet", "tests/web/test_engine.py"),
    "parallelism": ("tests/prediction",),
    "redact": ("tests/test_redact.py", "tests/test_redact_places.py"),
    "reporting": ("tests/report", "tests/render"),
    "request": ("tests/cli", "tests/answers"),
    "whatif": ("tests/replay",),
}
"""Packages whose tests don't lie in the folder of the same name."""
MODULES = "modules"
"""The area of what lies beside the packages."""


def make_areas(root: Path) -> dict[str, Area]:
    """Make an area of each package, one of predictors, and one of the modules beside the packages."""
    packages = sorted(path.parent.name for path in root.glob("tracekit/*/__init__.py"))
    beside = tuple(sorted(path.relative_to(root).as_posix() for path in root.glob("tracekit/*.py")))
    return {
        **{name: Area((f"tracekit/{name}/",), OTHER_TESTS.get(name, (f"tests/{name}",))) for name in packages},
        "predictors": Area(("predictors/",), ("tests/predictors",)),
        MODULES: Area(beside, ("tests/test_", "tests/timing")),
    }


AREAS = make_areas(ROOT)
LEFT_OUT = (
    "predictors/training",
    "predictors/microbench.py",
    "predictors/testing.py",
    "tracekit/web/migrations",
)
"""Scripts that make weights or need a GPU, batteries of tests, and migrations."""


def list_files(root: Path, area: Area) -> list[str]:
    """Return an area's modules, from the root."""
    found = [
        path.relative_to(root).as_posix()
        for code in area.code
        for path in (sorted((root / code).rglob("*.py")) if (root / code).is_dir() else [root / code])
    ]
    return [path for path in found if not path.startswith(LEFT_OUT)]


def find_area(path: str) -> Area:
    """Return the area that a module belongs to."""
    return next(area for area in AREAS.values() if path.startswith(area.code))


def draw_faults(root: Path, names: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, Fault]]:
    """Yield areas' names and faults: as many of each area, of a file by its length, of any kind, of a line once."""
    rng = random.Random(seed)
    files = {name: list_files(root, AREAS[name]) for name in names}
    lengths = {name: [len((root / path).read_text().splitlines()) for path in files[name]] for name in names}
    drawn: set[tuple[str, int]] = set()
    for i in range(count):
        name = names[i % len(names)]
        fault = None
        while fault is None or (fault.path, fault.line) in drawn or not compiles(fault):
            [path] = rng.choices(files[name], lengths[name])
            kinds: defaultdict[str, list[Fault]] = defaultdict(list)
            for found in find_faults(path, (root / path).read_text()):
                kinds[found.kind].append(found)
            fault = rng.choice(kinds[rng.choice(sorted(kinds))]) if kinds else None
        drawn.add((fault.path, fault.line))
        yield name, fault
