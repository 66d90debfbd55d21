"""A pytest plugin that keeps which test executed which line, by coverage.py: ``pytest -p tests.mutation.recorder``.

Writes, for each test file, ``FILE.db`` (coverage.py's data, a context a test function) and ``FILE.json`` (seconds by
test function) into the folder that ``TRACEKIT_MUTATION_RECORDS`` names. What fixtures execute has the context "",
since those of a module run for whichever test is first.
"""

import functools
import gc
import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

FOLDER = "TRACEKIT_MUTATION_RECORDS"
PACKAGES = ("tracekit", "predictors")


def name_record(folder: Path, test_file: str, suffix: str) -> Path:
    """Return where a test file's record lies."""
    return folder / (test_file.replace("/", "+") + suffix)


class Recorder:
    """Records one test file after the other."""

    def __init__(self, folder: Path) -> None:
        """Begin with no file."""
        self.folder = folder
        self.file = ""
        self.coverage: coverage.Coverage | None = None
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Begin and end the record of a file around its tests."""
        file = item.nodeid.split("::")[0]
        if file != self.file:
            self._begin(file)
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.nodeid.split("::")[0] != file:
                self._end()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Attribute what runs to the test function."""
        assert self.coverage is not None
        self.coverage.switch_context(item.nodeid.partition("::")[2].partition("[")[0])
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up a test function's seconds over its parameters."""
        self.seconds[report.nodeid.partition("::")[2].partition("[")[0]] += report.duration

    def _begin(self, file: str) -> None:
        clear_caches()
        self.file = file
        self.seconds.clear()
        self.coverage = coverage.Coverage(
            data_file=str(name_record(self.folder, file, ".db")), source=PACKAGES, config_file=False
        )
        self.coverage.set_option("run:relative_files", True)
        self.coverage.set_option(
            "run:disable_warnings",
            [
                *(f"module-not-{what}" for what in ("imported", "measured", "python")),
                "no-data-collected",
                "already-imported",
            ],
        )
        self.coverage.start()

    def _end(self) -> None:
        assert self.coverage is not None
        self.coverage.stop()
        self.coverage.save()
        name_record(self.folder, self.file, ".json").write_text(json.dumps(self.seconds))


def clear_caches() -> None:
    """Empty the packages' ``functools.cache``, so that each test file is seen to execute what it asks for."""
    for found in gc.get_objects():
        if type(found) is functools._lru_cache_wrapper and (found.__module__ or "").startswith(PACKAGES):
            found.cache_clear()


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder."""
    folder = Path(os.environ[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    config.pluginmanager.register(Recorder(folder))
