"""List the studies, and load them.

A study answers one question. It is a module of ``studies/``, or a folder there with one module for each of its tables.
A table's module has ``INPUTS``, the environment variables that it reads, and ``run() -> str``, which returns the table
in Markdown. One whose figures the packages ship has ``update() -> None`` too, which writes them.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.validation.study import MissingInputError, find_input

RESULTS = Path(__file__).parent / "results"
STUDIES = (
    "whole_jobs",
    "kernels",
    "collectives",
    "layouts",
    "replay",
    "coverage",
    "inference_rules",
    "recorded_samples",
    "reliability",
    "oracles",
)
"""Modules and folders of ``studies/``, whose docstring begins with the question."""


@dataclass(frozen=True)
class Table:
    """A table of a study.

    Attributes:
        name: ``STUDY`` or ``STUDY/TABLE``.
        module: Which makes it.
    """

    name: str
    module: ModuleType

    @property
    def summary(self) -> str:
        """Return the first line of the module's docstring."""
        return read_summary(self.module)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the environment variables that name its inputs."""
        return tuple(self.module.INPUTS)

    @property
    def results(self) -> Path:
        """Return the file that it is written to."""
        return RESULTS / f"{self.name}.md"

    def run(self) -> str:
        """Return the table in Markdown.

        Raises:
            MissingInputError: An input isn't on this machine; the message names all that are missing.
        """
        missing = []
        for variable in self.inputs:
            try:
                find_input(variable)
            except MissingInputError as error:
                missing.append(str(error))
        if missing:
            raise MissingInputError("; ".join(missing))
        return str(self.module.run())

    def update(self) -> None:
        """Write the figures that the packages ship, if it has any."""
        if hasattr(self.module, "update"):
            self.module.update()


@dataclass(frozen=True)
class Study:
    """A question and the tables that answer it."""

    name: str
    question: str
    tables: tuple[Table, ...]


def load_study(name: str) -> Study:
    """Import a study.

    Args:
        name: One of `STUDIES`.
    """
    module = importlib.import_module(f"tests.validation.studies.{name}")
    parts = getattr(module, "TABLES", ())
    tables = [Table(f"{name}/{part}", importlib.import_module(f"{module.__name__}.{part}")) for part in parts]
    return Study(name, read_summary(module), tuple(tables) or (Table(name, module),))


def find_tables(name: str) -> tuple[Table, ...]:
    """Find the tables that a name of the command line means.

    Args:
        name: ``all``, ``STUDY`` or ``STUDY/TABLE``.

    Raises:
        KeyError: There is no such study or table.
    """
    if name == "all":
        return tuple(table for study in STUDIES for table in load_study(study).tables)
    study, _, part = name.partition("/")
    if study not in STUDIES:
        raise KeyError(name)
    tables = tuple(table for table in load_study(study).tables if not part or table.name == name)
    if not tables:
        raise KeyError(name)
    return tables


def read_summary(module: ModuleType) -> str:
    """Return the first line of a module's docstring."""
    return (module.__doc__ or "").splitlines()[0]
