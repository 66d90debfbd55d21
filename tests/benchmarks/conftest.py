"""What several benchmarks read."""

from pathlib import Path

import pytest

from tracekit.testing import TraceBuilder

LAUNCHES = 20_000


@pytest.fixture(scope="session")
def text() -> bytes:
    """A trace of 60,000 events, 13 MB."""
    builder = TraceBuilder()
    for i in range(LAUNCHES):
        dims = [[i % 50 + 1, 1024], [1024, 1024]]
        builder.op("aten::mm", 10 * i, 9, dims=dims, types=["float", "float"], concrete=["", ""])
        builder.kernel("ampere_sgemm_128x64_nn", 10 * i + 20, 8, launch=10 * i + 2, grid=[8, 4, 1], block=[128, 1, 1])
    return builder.to_json()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave times to `make bench`: a busy machine changes ratios of them, too."""
    if not config.getoption("benchmark_enable"):
        skipped = pytest.mark.skip(reason="a busy machine changes ratios of time: make bench measures them")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(skipped)
