"""Describe what is fuzzed: how its cases are made, kept and checked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
TARGETS = tuple(sorted(path.stem for path in (FOLDER / "targets").glob("[!_]*.py")))
"""Names of all targets: a file each, which has its ``TARGET``."""
GUIDED = ("trace_bytes",)
"""Those that coverage guides in a long search; their cases are bytes."""


class BrokenPromiseError(AssertionError):
    """Something that tracekit promises for every input does not hold.

    Args:
        promise: What is broken, the same for all inputs that break it alike.
        details: What was seen.
    """

    def __init__(self, promise: str, details: object = "") -> None:
        super().__init__(f"{promise}\n{details}".strip())
        self.promise = promise


@dataclass(frozen=True)
class Target:
    """Something that takes input from users.

    Attributes:
        name: Name of its file and of the folder of its corpus.
        cases: Makes cases.
        check: Checks one case; raises if a promise is broken.
        load: Reads a case from the content of a file.
        dump: Writes a case as one.
        suffix: Suffix of these files.
        examples: Cases that every build makes.
        long_cases: Makes the cases of a long search, if these are others.
    """

    name: str
    cases: SearchStrategy[Any]
    check: Callable[[Any], None]
    load: Callable[[bytes], Any]
    dump: Callable[[Any], bytes]
    suffix: str
    examples: int
    long_cases: SearchStrategy[Any] | None = None

    @property
    def corpus(self) -> Path:
        """The folder of the kept cases."""
        return CORPUS / self.name

    def keep(self, case: Any, name: str) -> Path:
        """Write a case into the corpus and return its file."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        path = self.corpus / f"{name}{self.suffix}"
        path.write_bytes(self.dump(case))
        return path


def load_target(name: str) -> Target:
    """Import a target."""
    target = import_module(f"tests.fuzz.targets.{name}").TARGET
    assert isinstance(target, Target)
    return target


def list_kept(name: str) -> Iterator[Path]:
    """Yield the files of a target's corpus in order."""
    yield from sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
