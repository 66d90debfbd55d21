"""Nsight Systems writes a launch of a CUDA graph as one row, unless it is asked for the graph's nodes."""

import polars as pl
import pytest

import tracekit as tk
from tests.asking import predict
from tests.codes import list_codes
from tests.ingest.formats.nsight_files import build_tables, write_database, write_parquet_folder
from tracekit.doctor.examine import examine
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

PID = 3 * 2**48 + 100 * 2**24
"""Of process 100, as Nsight numbers it."""


def build_steps(graph_us=2000):
    """Build the tables of three steps: a graph's launch, of which nothing is known, and a kernel of 20 us behind it."""
    builder, ends = TraceBuilder(), []
    for number in range(3):
        at = 3000 * number
        builder.step(number, at, 2900).call("cudaGraphLaunch", at + 5, 5)
        ends.append(at + 30 + graph_us)
        builder.kernel("void relu<float>", at + graph_us + 32, 20, launch=at + 20)
        builder.call("cudaDeviceSynchronize", at + 30, graph_us + 30)
    for correlation, event in enumerate(e for e in builder.events if e["name"] == "cudaGraphLaunch"):
        event["args"] = {"correlation": 900 + correlation}
    tables = build_tables(builder.load().ranks[0])
    for name, table in tables.items():
        if name.startswith("CUPTI_ACTIVITY_KIND") and "globalTid" not in table.columns:
            tables[name] = table.with_columns(globalPid=pl.lit(PID))
    tables |= {
        name: table.with_columns(globalTid=pl.lit(PID) + 7) for name, table in tables.items() if "globalTid" in table
    }
    base = int(tables["TARGET_INFO_SESSION_START_TIME"]["utcEpochNs"][0])
    first = int(builder.load().ranks[0].calls["ts_ns"].min()) - base - 5_000
    graphs = pl.DataFrame(
        {
            "start": [first + 1000 * (end - graph_us) for end in ends],
            "end": [first + 1000 * end for end in ends],
            "deviceId": 0, "streamId": 7, "graphId": 3, "graphExecId": 4, "globalPid": PID,
            "correlationId": [900, 901, 902],
        }
    )  # fmt: skip
    return tables, graphs


@pytest.fixture(params=["sqlite", "parquet"])
def write(request, tmp_path):
    if request.param == "sqlite":
        return lambda tables: write_database(tmp_path / "report.sqlite", tables)
    return lambda tables: write_parquet_folder(tmp_path / "report", tables)


def add_graphs(tables, graphs):
    return tables | {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": graphs}


def list_fixes(trace, run):
    return {check.name: check.fix.code for check in examine(trace, run).checks if check.fix}


def list_warnings(run):
    return list_codes(build_report(run).warnings)


def test_a_whole_graph_keeps_the_gpu_busy_with_unknown_work(write):
    run = prepare_run(tk.load(write(add_graphs(*build_steps()))))
    assert run.measured_step.kernel_time_us == pytest.approx(2020)
    graphs = run.kernels.filter(name="CUDA graph 3")
    assert graphs["family"].to_list() == ["other"] * 3
    assert graphs["step"].to_list() == [0, 1, 2]
    assert graphs["work_from"].null_count() == 3
    codes = list_warnings(run)
    assert "graphs-whole" in codes
    assert {"kernels-lost", "gpu-stalled", "graphs-not-traced"}.isdisjoint(codes)


def test_its_time_on_another_gpu_may_be_that_of_any_resource(write):
    run = prepare_run(tk.load(write(add_graphs(*build_steps()))))
    (predicted,) = predict(run, ["h100-sxm"]).targets
    graph = predicted.kernels.filter(pl.Series(predicted.program.kernels["name"] == "CUDA graph 3"))
    assert graph["low_us"].max() < 2000 * 2.039 / 3.35
    assert graph["high_us"].min() > 2000


def test_a_report_may_hold_nothing_but_graphs(write):
    tables, graphs = build_steps()
    kept = {name: tables[name] for name in ("StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")}
    assert tk.load(write(add_graphs(kept, graphs))).ranks[0].activities["dur_ns"].to_list() == [2_000_000] * 3


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (("start", "end", "correlationId", "graphExecId"), "CUDA graph 4"),
        (("start", "end"), "CUDA graph"),
    ],
)
def test_columns_may_be_missing(write, columns, name):
    tables, graphs = build_steps()
    activities = tk.load(write(add_graphs(tables, graphs.select(columns)))).ranks[0].activities
    assert activities.filter(name=name)["dur_ns"].to_list() == [2_000_000] * 3


def test_a_graph_whose_nodes_are_there_counts_once(write):
    tables, graphs = build_steps()
    kernels = tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    node = kernels.head(1).with_columns(start=graphs["start"][1], end=graphs["end"][1], correlationId=pl.lit(901))
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = pl.concat([kernels, node], how="vertical_relaxed")
    activities = tk.load(write(add_graphs(tables, graphs))).ranks[0].activities
    assert activities.filter(pl.col("dur_ns") == 2_000_000)["name"].sort().to_list() == [
        "CUDA graph 3", "CUDA graph 3", "void relu<float>",
    ]  # fmt: skip


def test_an_op_around_the_launch_gives_a_graph_no_work(write):
    tables, graphs = build_steps()
    ranges = tables["NVTX_EVENTS"].with_columns(text=pl.lit("aten::mm, seq = 1, op_id = 1, sizes = [[8, 8], [8, 8]]"))
    tables["NVTX_EVENTS"] = pl.concat([tables["NVTX_EVENTS"], ranges])
    rows = prepare_run(tk.load(write(add_graphs(tables, graphs)))).kernels.filter(name="CUDA graph 3")
    assert rows["family"].to_list() == ["other"] * 3
    assert rows["m"].null_count() == 3


def test_the_doctor_names_the_option_that_records_nodes(write):
    trace = tk.load(write(add_graphs(*build_steps())))
    diagnosis = examine(trace, prepare_run(trace))
    assert diagnosis.best.name == "graphs"
    assert diagnosis.best.fix.code == "graph-nodes-fix"


def test_graphs_without_any_row_need_the_same_option(write):
    tables, _ = build_steps()
    trace = tk.load(write(tables))
    run = prepare_run(trace)
    codes = list_warnings(run)
    assert "graphs-not-traced" in codes
    assert "kernels-lost" not in codes
    assert list_fixes(trace, run)["launches_without_kernel"] == "graph-nodes-fix"
