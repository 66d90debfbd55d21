import os
from pathlib import Path

import pytest

VARIABLE = "TRACEKIT_REAL_TRACES"
SAMPLES = Path(__file__).parent.parent / "sample_traces"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the tests got into tests/golden")


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder of real traces; tests that need it skip where it isn't there."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set")
    return Path(folder)
