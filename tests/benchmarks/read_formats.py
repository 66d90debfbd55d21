"""Measure how fast traces of each format are read: the same launches and kernels, written as each tool writes them.

    python -m tests.benchmarks.read_formats [KERNELS]

Ops are written where the format has them. The CPU time is of this process, without the cache.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl

import tracekit as tk
from tests.benchmarks.timing import best
from tests.ingest.formats import (
    nsight_files,
    test_chakra_in,
    test_perfetto,
    test_rocpd,
    test_rocprofv3,
    test_xplane,
    torch_perfetto_files,
)
from tracekit.ingest.formats.perfetto_packets import load_messages
from tracekit.testing import TraceBuilder

NAME = "ampere_sgemm_128x64_nn"


def build_kineto(kernels: int) -> TraceBuilder:
    """An op, a launch and a kernel every 10 us."""
    builder = TraceBuilder()
    for i in range(kernels):
        dims = [[i % 50 + 1, 1024], [1024, 1024]]
        builder.op("aten::mm", 10 * i, 9, dims=dims, types=["float", "float"])
        builder.kernel(NAME, 10 * i + 20, 8, launch=10 * i + 2, launch_dur=5, grid=[8, 4, 1], block=[128, 1, 1])
    return builder


def write_rocprof(path: Path, kernels: int) -> None:
    report = test_rocprofv3.build_report()
    of = test_rocprofv3
    records = report["rocprofiler-sdk-tool"][0]["buffer_records"]
    records["hip_api"] = [of.span(10 * i + 2, 5, i + 1, kind=1, operation=1) for i in range(kernels)]
    records["kernel_dispatch"] = [
        of.span(10 * i + 20, 8, i + 1, dispatch_info=of.launch(5, 32, 128), stream_id={"handle": 4})
        for i in range(kernels)
    ]
    path.write_text(json.dumps(report))


def write_rocpd(path: Path, kernels: int) -> None:
    tables = test_rocpd.build_tables()
    number = pl.int_range(kernels, eager=True)
    for name, event, begins, dur in (("region", 100, 2, 5), ("kernel_dispatch", 100 + kernels, 20, 8)):
        row = tables[f"rocpd_{name}{test_rocpd.SUFFIX}"].tail(1)
        start = 10_000 * number + 1000 * begins
        copied = pl.concat([row] * kernels).with_columns(start=start, end=start + 1000 * dur, event_id=number + event)
        tables[f"rocpd_{name}{test_rocpd.SUFFIX}"] = copied
    events = tables[f"rocpd_event{test_rocpd.SUFFIX}"]
    call, dispatch = (events.filter(id=row) for row in (3, 5))
    more = [
        pl.concat([row] * kernels).with_columns(id=number + first, stack_id=number + 1000)
        for row, first in ((call, 100), (dispatch, 100 + kernels))
    ]
    nsight_files.write_database(path, tables | {f"rocpd_event{test_rocpd.SUFFIX}": pl.concat([events, *more])})


def write_perfetto(path: Path, kernels: int) -> None:
    trace = load_messages()["Trace"]()
    for i in range(kernels):
        test_perfetto.add_slice(trace, "hip_api", "hipLaunchKernel", 10 * i + 2, 5, tid=42, corr_id=i)
        sizes = {"workgroup_size": 128, "grid_size": 4096}
        test_perfetto.add_slice(trace, "kernel_dispatch", NAME, 10 * i + 20, 8, corr_id=i, agent=2, queue=1, **sizes)
    path.write_bytes(trace.SerializeToString())


def write_xplane(path: Path, kernels: int) -> None:
    space = test_xplane.build_space()
    gpu, host = (test_xplane.PlaneBuilder(space, name) for name in ("/device:GPU:0", "/host:CPU"))
    for i in range(kernels):
        facts = {"correlation_id": i, "kernel_details": test_xplane.DETAILS, "hlo_op": "dot.3"}
        gpu.event("Stream #14(Compute)", NAME, 10 * i + 20, 8, **facts)
        host.event("python", "cuLaunchKernel", 10 * i + 2, 5, correlation_id=i)
    path.write_bytes(space.SerializeToString())


def write_chakra(path: Path, kernels: int) -> None:
    nodes = []
    for i in range(kernels):
        nodes.append((2 * i, "aten::mm", 4, 9, [], {"is_cpu_op": True}))
        nodes.append((2 * i + 1, NAME, 4, 8, [2 * i], {"is_cpu_op": False, "stream": 7}))
    test_chakra_in.write(path, *nodes)


def main() -> None:
    """Write the files and print a row for each."""
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    kineto = build_kineto(kernels)
    tables = nsight_files.build_tables(kineto.load().ranks[0])
    writers: dict[str, Callable[[Path], object]] = {
        "trace.json": lambda path: path.write_bytes(kineto.to_json()),
        "torch.pftrace": lambda path: torch_perfetto_files.write(path, kineto.to_dict()["traceEvents"]),
        "report.sqlite": lambda path: nsight_files.write_database(path, tables),
        "report_pqtdir": lambda path: nsight_files.write_parquet_folder(path, tables),
        "results.db": lambda path: write_rocpd(path, kernels),
        "results.json": lambda path: write_rocprof(path, kernels),
        "results.pftrace": lambda path: write_perfetto(path, kernels),
        "host.xplane.pb": lambda path: write_xplane(path, kernels),
        "rank.0.et": lambda path: write_chakra(path, kernels),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, write in writers.items():
            path = Path(folder, name)
            write(path)
            files = path.iterdir() if path.is_dir() else [path]
            mb = sum(file.stat().st_size for file in files) / 1e6
            seconds = best(lambda path=path: tk.load(path, cache=False))
            speeds = f"{mb / seconds:6.1f} MB/s {kernels / seconds:9,.0f} kernels/s"
            sys.stdout.write(f"{name:16}{mb:7.1f} MB {seconds:6.2f} s {speeds}\n")


if __name__ == "__main__":
    main()
