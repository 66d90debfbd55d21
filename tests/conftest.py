import os
from pathlib import Path

import pytest

VARIABLE = "TRACEKIT_REAL_TRACES"
SAMPLES = Path(__file__).parent.parent / "sample_traces"


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder of real traces; tests that need it skip where it isn't there."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set")
    return Path(folder)


@pytest.fixture(scope="session", params=["train", "inference"])
def sample_trace(request: pytest.FixtureRequest) -> Path:
    """Each of the sample traces that come with tracekit."""
    return SAMPLES / f"synthetic_transformer_{request.param}.json.gz"
