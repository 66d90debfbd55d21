"""Make the synthetic sample traces without a GPU: python -m sample_traces.synthesize [FOLDER].

The steps of synthetic/models.py run on the CPU under the profiler. Their ops become those of a CUDA run, and a
model of the host and of an A100 gives all the times. The same PyTorch on the same kind of CPU gives the same
bytes.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity

from sample_traces.record import SAMPLES, save
from sample_traces.synthetic.cuda import to_cuda
from sample_traces.synthetic.gpu import DEVICE
from sample_traces.synthetic.models import STEPS, Step, record
from sample_traces.synthetic.ops import Op, read_steps
from sample_traces.synthetic.timeline import AUTOGRAD_THREAD, MAIN_THREAD, PROCESS, START_NS, STREAM, Timeline
from tracekit.testing import TraceBuilder

BASE_NS = 1_751_410_836_000_000_000
METADATA: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [DEVICE],
    "cupti_version": 22,
    "cuda_runtime_version": 12040,
    "cuda_driver_version": 12040,
    "record_shapes": 1,
    "synthetic": "made by sample_traces/synthesize.py from a CPU run; times are modelled, not measured",
    "displayTimeUnit": "ms",
}


def main() -> None:
    """Write every sample and say how large the files are."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    for kind in STEPS:
        path = folder / f"synthetic_transformer_{kind}.json.gz"
        builder = synthesize(record_cpu_steps(STEPS[kind]("cpu")), path.name.removesuffix(".gz"))
        save(builder.to_dict(), path)
        sys.stdout.write(f"{path} {path.stat().st_size / 1e3:.0f} kB\n")


def synthesize(steps: list[Op], name: str, slowdown: float = 1.0) -> TraceBuilder:
    """Build the trace of the steps of a CPU run as an A100, or a GPU that is slower by a factor, would run them."""
    timeline = Timeline(seed=0, slowdown=slowdown)
    for step in steps:
        timeline.play(to_cuda(step))
    timeline.synchronize()
    builder = TraceBuilder()
    builder.metadata = dict(METADATA)
    builder.base_ns, builder.name = BASE_NS, name
    builder.events = [*timeline.host.events, *timeline.flows.events, *timeline.device.events]
    _label_threads(builder)
    _mark_window(builder, timeline.now)
    return builder


def record_cpu_steps(step: Step) -> list[Op]:
    """Return the ops of three steps on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        record(step, [ProfilerActivity.CPU], path)
        return read_steps(path)


def _label_threads(builder: TraceBuilder) -> None:
    """Name processes and threads for the viewers."""
    rows = [
        ("process_name", PROCESS, 0, {"name": "python"}),
        ("process_labels", PROCESS, 0, {"labels": "CPU"}),
        ("process_name", 0, 0, {"name": "python"}),
        ("process_labels", 0, 0, {"labels": "GPU 0"}),
        ("thread_name", PROCESS, MAIN_THREAD, {"name": f"thread {MAIN_THREAD} (python)"}),
        ("thread_name", PROCESS, AUTOGRAD_THREAD, {"name": f"thread {AUTOGRAD_THREAD} (pt_autograd_0)"}),
        ("thread_name", 0, STREAM, {"name": f"stream {STREAM} "}),
    ]
    for kind, pid, tid, args in rows:
        builder.label(kind, START_NS / 1000, pid, tid, args)


def _mark_window(builder: TraceBuilder, end_ns: int) -> None:
    """Mark the profiler's window."""
    start, dur, source = START_NS / 1000, (end_ns - START_NS) / 1000, "PyTorch Profiler"
    builder.event("Trace", f"{source} (0)", start, dur, source, {"Op count": 0}, "Spans")
    builder.instant(f"Iteration Start: {source}", start, pid="Traces", tid=f"Trace {source}")
    builder.instant("Record Window End", end_ns / 1000)


if __name__ == "__main__":
    main()
