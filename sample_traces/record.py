"""Record the steps of workloads/ on this machine's GPU: python -m sample_traces.record [FOLDER [NAME ...]].

Writes FOLDER/<gpu>_<workload>.json.gz, by default of all samples and into sample_traces/recorded; files over a megabyte
stay out of the repository. NAME may also be one of the public traces' jobs (workloads/rebuilt.py), or `rebuilt` for all
of them, which need Hugging Face's transformers. The traces name no host and no folder.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import torch

import tracekit as tk
from predictors import PredictorError, identify_gpu
from predictors.microbench import capability
from sample_traces.workloads import REBUILT, WORKLOADS
from sample_traces.workloads.step import Step

SAMPLES = Path(__file__).parent
RECORDED = SAMPLES / "recorded"
PRIVATE_KEYS = ("host_name", "trace_id")
LARGEST_BYTES = 1_000_000
STEPS = {"wait": 10, "timed": 10, "warmup": 2, "active": 2}


def main() -> None:
    """Record what was asked for, all by default, and say how large the files are."""
    if not torch.cuda.is_available():
        sys.exit("record_samples: PyTorch finds no CUDA GPU on this machine")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED
    gpu = name_gpu()
    for workload in parse_workloads(sys.argv[2:]):
        path = record(workload, folder, f"{gpu}_{workload}", "cuda")
        size = path.stat().st_size
        large = "" if size < LARGEST_BYTES else ", too large for the repository"
        sys.stdout.write(f"{path} {size / 1e3:.0f} kB{large}\n")
        torch.cuda.empty_cache()


def parse_workloads(names: list[str]) -> list[str]:
    """Return the workloads to record.

    Raises:
        SystemExit: A name is unknown.
    """
    workloads = [one for name in names for one in (REBUILT if name == "rebuilt" else (name,))] or list(WORKLOADS)
    if unknown := [name for name in workloads if name not in WORKLOADS | REBUILT]:
        sys.exit(f"record_samples: no workload {unknown[0]!r}; there are {', '.join(WORKLOADS | REBUILT)}")
    return workloads


def name_gpu() -> str:
    """Return the slug of this machine's GPU; ``cpu`` where there is none, ``gpu`` for an unknown one."""
    if not torch.cuda.is_available():
        return "cpu"
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    try:
        return identify_gpu(gpu.name, gpu.multi_processor_count, gpu.total_memory, capability()).gpu.slug
    except PredictorError:
        return "gpu"


def record(workload: str, folder: Path, name: str, device: str, *, small: bool = False) -> Path:
    """Record one workload."""
    return record_step((WORKLOADS | REBUILT)[workload](device, small), folder, name)


def record_step(step: Step, folder: Path, name: str) -> Path:
    """Record a step, and take the machine's name and the paths out of its trace."""
    with tk.record(folder, name=name, overwrite=True, quiet=True, **STEPS) as recording:
        while not recording.is_complete:
            step()
            recording.step()
    path = folder / f"{name}.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()), object_hook=hide_folders)
    save({key: value for key, value in trace.items() if key not in PRIVATE_KEYS} | {"traceName": f"{name}.json"}, path)
    return path


def hide_folders(values: dict[str, Any]) -> dict[str, Any]:
    """Return values without the folders of paths, which may hold a user's name: Triton's kernels name their files."""
    return {
        key: Path(value).name if isinstance(value, str) and value.startswith("/") else value
        for key, value in values.items()
    }


def save(trace: dict[str, Any], path: Path) -> None:
    """Write a trace as gzipped JSON, the same bytes for the same trace."""
    text = json.dumps(trace, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
