"""Makes the synthetic sample traces without a GPU: python scripts/synthesize_samples.py [FOLDER].

The steps of sample_models.py run on the CPU under the profiler. Their ops become those of a CUDA run, and a
model of the host and of an A100 gives all the times. The same PyTorch on the same kind of CPU gives the same
bytes.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from record_samples import SAMPLES, save
from sample_models import STEPS, record
from synthetic.cuda import to_cuda
from synthetic.gpu import DEVICE
from synthetic.ops import Op, read_steps
from synthetic.timeline import AUTOGRAD_THREAD, MAIN_THREAD, PROCESS, START_NS, STREAM, Timeline, complete
from torch.profiler import ProfilerActivity

BASE_NS = 1_751_410_836_000_000_000
SYNTHETIC = "made by scripts/synthesize_samples.py from a CPU run; times are modelled, not measured"


def main() -> None:
    """Writes every sample and says how large the files are."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    for kind in STEPS:
        path = folder / f"synthetic_transformer_{kind}.json.gz"
        save(synthesize(_cpu_steps(kind), path.name.removesuffix(".gz")), path)
        sys.stdout.write(f"{path} {path.stat().st_size / 1e3:.0f} kB\n")


def synthesize(steps: list[Op], name: str, slowdown: float = 1.0) -> dict[str, Any]:
    """Returns the trace of the steps of a CPU run as an A100, or a GPU that is slower by a factor, would run them."""
    timeline = Timeline(seed=0, slowdown=slowdown)
    for step in steps:
        timeline.play(to_cuda(step))
    timeline.synchronize()
    return {
        "schemaVersion": 1,
        "deviceProperties": [DEVICE],
        "cupti_version": 22,
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 12040,
        "record_shapes": 1,
        "synthetic": SYNTHETIC,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [
            *timeline.host_events,
            *timeline.flows,
            *timeline.device_events,
            *_names(),
            *_window(timeline.now),
        ],
        "traceName": name,
    }


def _cpu_steps(kind: str) -> list[Op]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        record(STEPS[kind]("cpu"), [ProfilerActivity.CPU], path)
        return read_steps(path)


def _names() -> list[dict[str, Any]]:
    """Names processes and threads for the viewers."""
    rows = [
        ("process_name", PROCESS, 0, {"name": "python"}),
        ("process_labels", PROCESS, 0, {"labels": "CPU"}),
        ("process_name", 0, 0, {"name": "python"}),
        ("process_labels", 0, 0, {"labels": "GPU 0"}),
        ("thread_name", PROCESS, MAIN_THREAD, {"name": f"thread {MAIN_THREAD} (python)"}),
        ("thread_name", PROCESS, AUTOGRAD_THREAD, {"name": f"thread {AUTOGRAD_THREAD} (pt_autograd_0)"}),
        ("thread_name", 0, STREAM, {"name": f"stream {STREAM} "}),
    ]
    return [
        {"name": name, "ph": "M", "ts": START_NS / 1000, "pid": pid, "tid": tid, "args": args}
        for name, pid, tid, args in rows
    ]


def _window(end_ns: int) -> list[dict[str, Any]]:
    """Marks the profiler's window."""
    args = {"Op count": 0}
    name, source = "PyTorch Profiler (0)", "PyTorch Profiler"
    return [
        complete("Trace", name, "Spans", source, START_NS, end_ns - START_NS, args),
        _instant(f"Iteration Start: {source}", "Traces", f"Trace {source}", START_NS),
        _instant("Record Window End", "", "", end_ns),
    ]


def _instant(name: str, pid: str, tid: str, ns: int) -> dict[str, Any]:
    return {"ph": "i", "s": "g", "name": name, "pid": pid, "tid": tid, "ts": ns / 1000}


if __name__ == "__main__":
    main()
