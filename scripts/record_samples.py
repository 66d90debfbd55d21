"""Records the sample steps on this machine's GPU: python scripts/record_samples.py [FOLDER].

Writes <gpu>_transformer_<train | inference>.json.gz, by default into sample_traces/.
"""

import gzip
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from sample_models import STEPS, record
from torch.profiler import ProfilerActivity

SAMPLES = Path(__file__).parents[1] / "sample_traces"
PRIVATE_KEYS = ("host_name", "trace_id")


def main() -> None:
    """Records every sample and says how large the files are."""
    if not torch.cuda.is_available():
        sys.exit("record_samples: PyTorch finds no CUDA GPU on this machine")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    folder.mkdir(parents=True, exist_ok=True)
    gpu = re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower())
    for kind in STEPS:
        path = folder / f"{gpu}_transformer_{kind}.json.gz"
        save(_anonymous(_record(kind), path.name.removesuffix(".gz")), path)
        sys.stdout.write(f"{path} {path.stat().st_size / 1e3:.0f} kB\n")


def save(trace: dict[str, Any], path: Path) -> None:
    """Writes a trace as gzipped JSON, the same bytes for the same trace."""
    text = json.dumps(trace, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _record(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        record(STEPS[kind]("cuda"), activities, wait=1, warmup=2, path=path)
        return json.loads(path.read_text())


def _anonymous(trace: dict[str, Any], name: str) -> dict[str, Any]:
    """Takes out the machine's name and the trace's path; without stacks no other path is in a trace."""
    return {key: value for key, value in trace.items() if key not in PRIVATE_KEYS} | {"traceName": name}


if __name__ == "__main__":
    main()
