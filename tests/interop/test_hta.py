"""HTA's analyses give the same numbers on tracekit's tables as on HTA's own loading of the same file.

All differences that are allowed, each by nature:

- Times are counted from the first event, and HTA's first may be one that tracekit doesn't read (a Python frame).
- What happens within one microsecond has no order there.
- HTA takes the GPU's marks of steps for steps. On AMD it so leaves out the last mark, and not the last step
  (``LAST_STEP_KEPT``).
"""

import gzip
import json
import os
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

pd = pytest.importorskip("pandas")
pytest.importorskip("hta.trace_analysis")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.heavy]

WITH_CRITICAL_PATH = ("h100_vit_inference", "hta_critical_path_cuda_event_sync", "v100_dlrm_train_rank0_of_8")
REAL = (
    *WITH_CRITICAL_PATH,
    "hta_critical_path_alexnet",
    "hta_critical_path_cuda_event_sync_multi_stream",
    "hta_critical_path_simple_add",
    "v100_resnet50_train_6steps_2021",
    "hta_sampled_rank0_of_128",
    "h100_vgg13_train_bs512",
)
LAST_STEP_KEPT = ("mi300x_resnet_act_checkpoint_rank0_of_8",)


def temporal_breakdown(analysis):
    return analysis.get_temporal_breakdown(visualize=False)


def overlap(analysis):
    return analysis.get_comm_comp_overlap(visualize=False)


def idle_time(analysis):
    return in_order(analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0])


def kernel_breakdown(analysis):
    return in_order(analysis.get_gpu_kernel_breakdown(visualize=False)[0])


def launch_stats(analysis):
    return in_order(analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0])


def queue_length_over_time(analysis):
    series = analysis.get_queue_length_time_series(ranks=[0])[0]
    ends = series.groupby(["stream", "ts"], as_index=False)["queue_length"].last()
    return in_order(ends.assign(ts=ends["ts"] - ends["ts"].min()))


def memory_bandwidth(analysis):
    summary = analysis.get_memory_bw_summary(ranks=[0])
    return pd.DataFrame() if summary is None else in_order(summary["memory_bw_gbps"].reset_index())


def gpu_annotations(analysis):
    found = analysis.get_gpu_user_annotation_breakdown(use_gpu_annotation=True, visualize=False)
    return pd.DataFrame() if found is None else in_order(found)


def events(analysis):
    """Of the tables that tracekit reads, with their places in the file and their names."""
    trace = analysis.t
    table = trace.get_trace(0)
    name, category = (table[column].map(trace.symbol_table.sym_table.__getitem__) for column in ("name", "cat"))
    rows = pd.DataFrame(
        {"index": table["index"], "name": name, "ts": table["ts"], "dur": table["dur"], "iteration": table["iteration"]}
    )
    rows = rows[category.isin(READ) & ~name.str.startswith("ProfilerStep")]
    return in_order(rows.assign(ts=rows["ts"] - rows["ts"].min()))


READ = (
    "cpu_op", "Operator", "cuda_runtime", "cuda_driver", "Runtime", "kernel", "Kernel", "gpu_memcpy", "Memcpy",
    "gpu_memset", "Memset", "cuda_sync",
)  # fmt: skip
ANALYSES = (
    temporal_breakdown, overlap, idle_time, kernel_breakdown, launch_stats, queue_length_over_time, memory_bandwidth,
    gpu_annotations, events,
)  # fmt: skip


def in_order(frame):
    numbers = frame.apply(lambda column: pd.to_numeric(column) if column.name not in TEXTS else column.astype(str))
    return numbers.sort_values(list(numbers.columns)).reset_index(drop=True)


TEXTS = ("name", "name_", "idle_category", "kernel_type")


def training():
    """Three steps with copies, a collective beside computation, waits, and times between the microseconds."""
    builder = TraceBuilder()
    for step in range(3):
        at = 1000.25 * step
        builder.step(step + 1, at, 999.5)
        builder.op("aten::mm", at + 10.125, 40.5, dims=[[64, 32], [32, 16]], types=["float", "float"])
        builder.kernel("ampere_sgemm_64x32", at + 60.75, 300.6, launch=at + 20.1)
        builder.kernel("vectorized_elementwise_kernel", at + 400.3, 0.4, launch=at + 70)
        builder.kernel("Memcpy HtoD (Pinned -> Device)", at + 20, 30.9, launch=at + 15.5, launch_dur=3,
                       call="cudaMemcpyAsync", kind="gpu_memcpy", bytes=4096,
                       **{"memory bandwidth (GB/s)": 0.1312})  # fmt: skip
        builder.event("gpu_user_annotation", "forward", at + 60.75, 490.1, 7, {"External id": 3})
        builder.kernel("ncclDevKernel_AllReduce_Sum_f32", at + 200.7, 350, launch=at + 90, stream=20)
        builder.kernel("late_kernel", at + 900.5, 120, launch=at + 600)
        builder.event("gpu_user_annotation", "with the last kernel", at + 900.5, 120, 7, {"External id": 4})
        builder.call("cudaDeviceSynchronize", at + 700, 290.333)
    return builder


def both(path, *, include_last_profiler_step=False):
    """HTA's own loading of a file, and tracekit's."""
    from hta.trace_analysis import TraceAnalysis

    ours = tk.load(path, cache=False).to_hta(include_last_profiler_step=include_last_profiler_step)
    return TraceAnalysis(trace_files={0: str(path)}), ours


@pytest.fixture(scope="module", params=("made by hand", *REAL, *LAST_STEP_KEPT))
def loaded(request, tmp_path_factory):
    if request.param == "made by hand":
        return both(training().save(tmp_path_factory.mktemp("hta") / "training.json.gz"))
    if "TRACEKIT_REAL_TRACES" not in os.environ:
        pytest.skip("needs the public traces")
    path = Path(os.environ["TRACEKIT_REAL_TRACES"]) / f"{request.param}.json.gz"
    own, ours = both(path, include_last_profiler_step=request.param in LAST_STEP_KEPT)
    ours.t.traces = {0: next(iter(ours.t.traces.values()))}
    return own, ours


@pytest.mark.parametrize("analysis", ANALYSES)
def test_analyses_give_the_same_numbers(loaded, analysis, request):
    if analysis is gpu_annotations and any(name in request.node.name for name in LAST_STEP_KEPT):
        pytest.skip("HTA leaves out the last mark")
    own, ours = (analysis(one) for one in loaded)
    pd.testing.assert_frame_equal(own, ours, check_dtype=False, check_exact=True)


needs_old_pandas = pytest.mark.skipif(
    int(pd.__version__.split(".")[0]) >= 3, reason="HTA's critical path fails on pandas 3, on its own loading too"
)


def critical_path(analysis):
    graph, found = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
    symbols = analysis.t.symbol_table.sym_table
    names = sorted(symbols[graph.full_trace_df["name"].loc[event]] for event in graph.critical_path_events_set)
    weight = sum(edge.weight for edge in graph.critical_path_edges_set)
    return found, names, weight, graph.number_of_nodes(), graph.number_of_edges()


def critical_events(analysis, folder):
    graph, _ = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
    overlaid = gzip.decompress(
        Path(analysis.overlay_critical_path_analysis(0, graph, output_dir=str(folder))).read_bytes()
    )
    marked = [event for event in json.loads(overlaid)["traceEvents"] if event.get("args", {}).get("critical")]
    return sorted((event["ph"], event["name"], event["ts"]) for event in marked)


@needs_old_pandas
@pytest.mark.skipif("TRACEKIT_REAL_TRACES" not in os.environ, reason="needs the public traces")
@pytest.mark.parametrize("name", WITH_CRITICAL_PATH)
def test_the_critical_path_is_the_same(name, tmp_path):
    own, ours = both(Path(os.environ["TRACEKIT_REAL_TRACES"]) / f"{name}.json.gz")
    assert critical_path(own) == critical_path(ours)
    assert critical_events(own, tmp_path / "own") == critical_events(ours, tmp_path / "ours")


@needs_old_pandas
def test_the_critical_path_of_a_step_is_the_same(tmp_path):
    own, ours = both(training().save(tmp_path / "training.json"))
    assert critical_path(own) == critical_path(ours)


@needs_old_pandas
def test_the_critical_path_is_laid_over_the_same_events_of_the_file(tmp_path):
    own, ours = both(training().save(tmp_path / "training.json.gz"))
    found = critical_events(ours, tmp_path / "ours")
    assert found == critical_events(own, tmp_path / "own")
    assert ("X", "ncclDevKernel_AllReduce_Sum_f32", 200.7) in found


def test_an_event_s_index_is_its_place_in_the_file(tmp_path):
    path = training().save(tmp_path / "training.json.gz")
    raw = json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]
    trace = tk.load(path, cache=False).to_hta(include_last_profiler_step=True).t
    table, symbols = trace.get_trace(0), trace.symbol_table.sym_table
    assert [symbols[name] for name in table["name"]] == [raw[place]["name"] for place in table["index"]]
    first = raw[0]["ts"]
    assert all(table["ts"] - [raw[place]["ts"] - first for place in table["index"]] <= 1)


@pytest.mark.parametrize(("name", "reason"), [("gone.json", "places-without-file"), ("cut.json", "places-without-json"),
                                              ("other.json", "places-changed")])  # fmt: skip
def test_without_the_file_nothing_is_laid_over_it(name, reason, tmp_path):
    path = training().save(tmp_path / name)
    trace = tk.load(path, cache=False)
    text = Path(path).read_text()
    Path(path).unlink()
    if name == "cut.json":
        Path(path).write_text(text[:-9])
    elif name == "other.json":
        Path(path).write_text(text.replace("ampere_sgemm", "volta_sgemm"))
    analysis = trace.to_hta()
    assert set(analysis.t.get_trace(0)["iteration"]) - {-1} == {1, 2}
    with pytest.raises(TracekitError) as refused:
        analysis.overlay_critical_path_analysis(0, None, output_dir=str(tmp_path))
    assert refused.value.code == "overlay-not-possible"
    assert refused.value.catalogue_message.values["reason"].code == reason


def test_the_last_step_is_kept_on_request():
    trace = training().load()
    without, with_it = trace.to_hta().t.get_trace(0), trace.to_hta(include_last_profiler_step=True).t.get_trace(0)
    assert set(without["iteration"]) == {1, 2}
    assert set(with_it["iteration"]) == {1, 2, 3}


def test_ranks_keep_their_numbers():
    from dataclasses import replace

    (rank,) = training().load().ranks
    trace = tk.trace.Trace((replace(rank, rank=3), replace(rank, rank=5)))
    assert list(trace.to_hta().get_temporal_breakdown(visualize=False)["rank"]) == [3, 5]


def test_the_reports_queues_and_copies_are_those_of_hta(real_traces):
    """Longest queue and fastest copy; HTA weighs copies by number, the report by time, so means differ."""
    trace = tk.load(real_traces / "v100_resnet50_train_6steps_2021.json.gz", cache=False)
    report = build_report(prepare_run(trace))
    analysis = trace.to_hta()
    longest = analysis.get_queue_length_summary(ranks=[0])["queue_length"]["max"]
    assert max(stream.most_queued for stream in report.streams) == longest.max()
    (course,) = report.course.queues
    assert 0.95 * longest.max() <= max(course.values) <= longest.max()
    copies = {row.kind: row for row in report.copies}
    fastest = analysis.get_memory_bw_summary(ranks=[0])["memory_bw_gbps"]["max"]
    assert copies["HtoD"].high_gbps == pytest.approx(fastest[0, "Memcpy HtoD"], rel=1e-3)
    assert copies["memset"].high_gbps == pytest.approx(fastest[0, "Memset"], rel=1e-3)
