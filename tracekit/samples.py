"""The sample traces: beside the package in a checkout, inside it once installed."""

from functools import cache
from pathlib import Path

SAMPLE_SUFFIX = ".json.gz"
SAMPLE_FOLDERS = (Path(__file__).parent / "web" / "samples", Path(__file__).parents[1] / "sample_traces")
DEMO_SAMPLE = "synthetic_transformer_train"


@cache
def find_samples() -> dict[str, Path]:
    """Return the samples by name."""
    return {
        path.name.removesuffix(SAMPLE_SUFFIX): path
        for folder in SAMPLE_FOLDERS
        for path in sorted(folder.glob(f"*{SAMPLE_SUFFIX}"))
    }
