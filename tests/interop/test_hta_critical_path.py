"""The same kernels lie on the critical path as HTA finds, on the traces of HTA's own tests."""

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tracekit.analysis.binding_edges import TimeRanges, follow_binding_edges, get_edge_kinds, get_nodes
from tracekit.graph.edges import EdgeKind
from tracekit.replay.engine import build_measured_timeline
from tracekit.run import MeasuredRun, prepare_run

hta = pytest.importorskip("hta.trace_analysis")
pytestmark = pytest.mark.filterwarnings("ignore")

FORWARD = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"


def of_hta(path: str, annotation: str, instance: int) -> list[str]:
    """Names of the activities on HTA's critical path, in order of start."""
    analysis = hta.TraceAnalysis(trace_files={0: path}, trace_dir="")
    found, _ = analysis.critical_path_analysis(rank=0, annotation=annotation, instance_id=instance)
    events = analysis.t.get_trace(0).loc[list(found.critical_path_events_set)]
    names = analysis.t.symbol_table.get_sym_table()
    return [names[number] for number in events[events["stream"] >= 0].sort_values("ts")["name"]]


def of_tracekit(run: MeasuredRun, annotation: str | None, instance: int) -> list[str]:
    """Names of the activities between the beginning of a range and the end of the last activity launched in it."""
    nodes, vertex = run.graph.nodes, run.graph.vertex
    begin, end = 0, int(nodes.end_ns.max())
    if annotation is not None:
        ranges = run.trace.annotations.filter(pl.col("name") == annotation).sort("ts_ns")
        begin = ranges["ts_ns"][instance] - nodes.origin_ns
        end = begin + ranges["dur_ns"][instance]
    launched_ns = nodes.start_ns[nodes.launcher]
    inside = (launched_ns >= begin) & (launched_ns <= end)
    last = nodes.n_host + int(np.argmax(np.where(inside, nodes.end_ns[nodes.n_host :], -1)))
    stretch = TimeRanges(np.array([begin]), nodes.end_ns[[last]], vertex[[2 * last + 1]])
    trail = follow_binding_edges(run.graph, build_measured_timeline(run.graph), stretch)
    node = get_nodes(run.graph, trail.vertex)
    rows = node[(get_edge_kinds(run.graph, trail) == EdgeKind.RUN) & (node >= nodes.n_host)] - nodes.n_host
    return run.kernels["name"].gather(pl.Series(rows[::-1])).to_list()


@pytest.mark.parametrize(
    ("name", "annotation", "instance", "kernels"),
    [("simple_add", FORWARD, 1, 6), ("alexnet", FORWARD, 1, 34), ("cuda_event_sync", "ProfilerStep#100", 0, 2)],
)
def test_the_same_path(real_traces, name, annotation, instance, kernels):
    path = str(real_traces / f"hta_critical_path_{name}.json.gz")
    found = of_tracekit(prepare_run(tk.load(path)), annotation, instance)
    assert len(found) == kernels
    assert found == of_hta(path, annotation, instance)


def test_a_kernel_that_its_launch_held_up_waited_for_no_other(real_traces):
    """The product starts 15 us after its launch, as others do; HTA has it wait for a set that ended at the launch."""
    path = str(real_traces / "hta_critical_path_cuda_event_sync_multi_stream.json.gz")
    assert of_tracekit(prepare_run(tk.load(path)), None, 0) == ["ampere_sgemm_128x64_nn"]
    assert of_hta(path, "", 0) == ["Memset (Device)", "ampere_sgemm_128x64_nn"]
