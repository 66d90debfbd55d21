import gc
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import settings

VARIABLE = "TRACEKIT_REAL_TRACES"
SAMPLES = Path(__file__).parent.parent / "sample_traces"
CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
BROWSER_MS = 120_000
"""Longer than a stalled machine needs to open a page; Playwright's own 30 s weren't."""

# Each worker of pytest-xdist has a core: threads of OpenMP (PyTorch, scikit-learn) would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("quick", deadline=None, max_examples=20)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the tests got into tests/golden")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imports leave no garbage: looking for it among all that they bring took a third of collecting's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the tests, and what they start, away from the user's cache and calibrations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_command_line() -> Iterator[None]:
    """Builds the command line's tree of options once, rather than for each command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


def list_real_traces() -> list[Path]:
    """List the real traces by name, without execution traces; none where their folder isn't told."""
    folder = os.environ.get(VARIABLE)
    return sorted(path for path in Path(folder).glob("*.json.gz") if ".et." not in path.name) if folder else []


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder of real traces; tests that need it skip where it isn't there."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set")
    return Path(folder)


@pytest.fixture(scope="module")
def new_page() -> Iterator[Callable[..., Any]]:
    """Opens pages in a real browser, each with a profile of its own; tests that need it skip where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS, timeout=BROWSER_MS)

        def opened(**options: object) -> object:
            page = browser.new_page(**options)
            page.set_default_timeout(BROWSER_MS)
            return page

        yield opened
        browser.close()
