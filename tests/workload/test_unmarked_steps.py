"""Steps that neither the profiler nor an engine nor an optimizer marks; times in microseconds."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from tests.ingest.formats.nsight_files import build_tables, write_database
from tests.jobs import job
from tracekit.ingest import decode, load
from tracekit.rules import NO_RULES
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import RankTrace
from tracekit.workload.steps import find_steps, find_steps_of_ranks, is_whole_trace

WORKER = "vllm/v1/worker/gpu_model_runner.py(3380): execute_model"


def edges(builder: TraceBuilder, *without: str, stacks: bool = False) -> list[tuple[float, float]] | None:
    """Begin and end of each step since the trace's base; ``None`` where the whole trace is one."""
    steps = find_steps(builder.load(stacks=stacks).rank(), frozenset(without))
    if is_whole_trace(steps):
        return None
    return [
        ((start - builder.base_ns) / 1e3, (end - builder.base_ns) / 1e3)
        for start, end in steps.select("start_ns", "end_ns").rows()
    ]


def told(builder: TraceBuilder) -> list[str]:
    return [note.code for note in find_steps_of_ranks([builder.load().rank()])[1]]


def ranges(*names: str, work: Sequence[float] = (60, 60, 60, 60, 60), at: float = 0) -> TraceBuilder:
    """Ranges every 100, each 80 long, with a kernel of some length launched in it."""
    builder = TraceBuilder()
    for i, (name, dur) in enumerate(zip(names, work, strict=False)):
        start = at + 100 * i
        builder.annotation(name, start, 80).kernel("k", start + 20, dur, launch=start + 10)
    return builder


REGIONS = [(0, 80), (100, 180), (200, 280), (300, 380), (400, 480)]


def test_ranges_of_one_name_with_about_the_same_work_are_steps() -> None:
    builder = ranges(*["timed region"] * 5)
    assert edges(builder) == REGIONS
    assert told(builder) == ["steps-from-ranges"]
    assert edges(builder, "repeated-range-steps") is None
    run = prepare_run(builder.load())
    assert (run.measured_step.steps, run.measured_step.step_time_us) == (4, 100)


def test_numbers_in_names_count_as_equal() -> None:
    assert edges(ranges("iter 7", "iter 8", "iter 9", "iter 10", "iter 11")) == REGIONS


@pytest.mark.parametrize("work", [(10, 60, 20, 60, 5), (60, 1, 60, 1, 60)])
def test_ranges_with_uneven_work_are_no_steps(work: tuple[float, ...]) -> None:
    assert edges(ranges(*["timed region"] * 5, work=work)) is None


def test_the_first_range_may_be_a_warm_up() -> None:
    assert edges(ranges(*["timed region"] * 5, work=(79, 20, 20, 20, 20))) == REGIONS


@pytest.mark.parametrize("name", ["layer.0", "attention", "computing softmax", "nccl:all_reduce", "FSDP::pre_forward"])
def test_ranges_named_as_parts_of_a_step_are_none(name: str) -> None:
    assert edges(ranges(*[name] * 5)) is None


def test_parts_within_one_forward_are_no_steps_but_iterations_within_a_loop_are() -> None:
    assert edges(ranges(*["part"] * 5).annotation("forward", 0, 500)) is None
    assert edges(ranges(*["part"] * 5).annotation("benchmark_loop", 0, 500)) == REGIONS


def test_of_nested_ranges_the_outer_ones_are_steps() -> None:
    builder = ranges(*["train"] * 5)
    for start in range(0, 500, 100):
        builder.annotation("a", start, 5).annotation("part", start + 8, 4).annotation("part", start + 40, 30)
        builder.kernel("k", start + 85, 1, launch=start + 45)
    assert edges(builder) == REGIONS


def test_epochs_are_no_steps_but_the_iterations_in_them_are() -> None:
    builder = ranges(*["iteration"] * 4).annotation("epoch 0", 0, 190).annotation("epoch 1", 200, 190)
    assert edges(builder) == REGIONS[:4]


def test_ranges_that_take_turns_make_a_step_together() -> None:
    builder = TraceBuilder()
    for start in (0, 200, 400):
        for name, place in (("fwd", 0), ("bwd", 60), ("opt", 120)):
            builder.annotation(name, start + place, 50).kernel("k", start + place + 10, 30, launch=start + place + 5)
    assert edges(builder) == [(0, 170), (200, 370), (400, 570)]


def test_a_marked_forward_pass_marks_the_step_from_one_to_the_next() -> None:
    """The backward pass has no range; the last step lasts until the last call has returned."""
    builder = ranges(*["forward"] * 3, work=(30, 30, 30))
    for start in (0, 100, 200):
        builder.kernel("backward", start + 85, 14, launch=start + 82, launch_dur=3)
    assert [start for start, _ in edges(builder) or []] == [0, 100, 200]
    assert [end for _, end in edges(builder) or []] == [100, 200, pytest.approx(285, abs=0.01)]


def test_a_range_that_holds_little_of_the_work_tells_no_steps() -> None:
    builder = ranges(*["loss"] * 4, work=(5, 5, 5, 5))
    for start in (0, 100, 200, 300):
        builder.kernel("model", start + 30, 60, launch=start + 85)
    assert edges(builder) is None


def test_one_range_alone_leaves_the_whole_trace() -> None:
    assert edges(ranges("timed region")) is None


def test_ranges_on_two_threads_that_run_together_make_a_step_together() -> None:
    builder = ranges(*["forward replica"] * 4)
    for start in range(0, 400, 100):
        builder.annotation("forward replica", start + 5, 80, thread=7)
        builder.kernel("k", start + 20, 60, launch=start + 12, thread=7, stream=9)
    assert edges(builder) == [(start, start + 85) for start in range(0, 400, 100)]


def test_iterations_without_ranges_may_come_first() -> None:
    builder = ranges(*["timed region"] * 3, at=1000)
    for start in range(0, 1000, 200):
        builder.kernel("k", start + 20, 60, launch=start + 10)
    assert edges(builder) == [(1000, 1080), (1100, 1180), (1200, 1280)]


def prepared(*names: str) -> TraceBuilder:
    """Ranges of a run, each 1000 long with ten times the work of the one behind it."""
    builder = TraceBuilder()
    for place, name in enumerate(names):
        builder.annotation(name, 1000 * place, 900)
        builder.kernel("k", 1000 * place + 20, 800, launch=1000 * place + 10)
    return builder


@pytest.mark.parametrize(
    "names",
    [("init_model", "warmup"), ("load_weights", "warm-up"), ("initialize", "Loading model", "WarmUp"), ("setup",)],
)
def test_what_prepares_a_run_is_no_part_of_the_step(names: tuple[str, ...]) -> None:
    builder = prepared(*names, "benchmark_loop")
    start = 1000 * len(names)
    assert edges(builder) == [(start, start + 900)]
    assert told(builder) == ["step-from-range"]
    assert edges(builder, "setup-ranges") is None
    run = prepare_run(builder.load())
    assert run.measured_step.kernel_time_us == pytest.approx(800)


def test_without_a_range_of_its_own_the_step_begins_behind_the_preparation() -> None:
    builder = prepared("init_model").kernel("k", 1020, 50, launch=1000).kernel("k", 1080, 50, launch=1010)
    builder.kernel("free", 1300, 1, launch=1290)
    assert edges(builder) == [(900, pytest.approx(1295, abs=0.01))]
    assert told(builder) == ["step-without-setup"]


def test_a_checkpoint_loaded_at_the_end_is_no_part_either() -> None:
    assert edges(prepared("load_model", "benchmark", "load_checkpoint")) == [(1000, 1900)]


@pytest.mark.parametrize("names", [("load_batch", "train", "load_batch", "train"), ("load_balancing",), ("workload",)])
def test_loading_within_steps_and_words_alike_are_no_preparation(names: tuple[str, ...]) -> None:
    assert edges(prepared(*names), "repeated-range-steps") is None


def test_preparation_beside_repeated_ranges_is_outside_of_their_steps() -> None:
    builder = ranges(*["timed region"] * 5, at=10_000).annotation("init_model", 0, 9000)
    builder.kernel("copy", 100, 8000, launch=50)
    assert edges(builder) == [(10_000 + start, 10_000 + end) for start, end in REGIONS]


def worked(*starts: float, thread: int = 100, name: str = WORKER, work: float = 60) -> TraceBuilder:
    builder = TraceBuilder()
    for start in starts:
        builder.python(name, start, 70, thread=thread).kernel("k", start + 20, work, launch=start + 10, thread=thread)
    return builder


@pytest.mark.parametrize(
    "name",
    [
        WORKER,
        "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py(2919): _run_batch_inner",
        "sglang/srt/managers/tp_worker.py(445): forward_batch_generation",
        "tensorrt_llm/_torch/pyexecutor/py_executor.py(1570): _forward_step",
    ],
)
@pytest.mark.parametrize("stacks", [False, True])
def test_each_call_of_a_worker_is_a_step_up_to_the_next(name: str, stacks: bool) -> None:
    builder = worked(0, 100, 200, name=name)
    assert edges(builder, stacks=stacks) == [(0, 100), (100, 200), (200, 270)]
    assert told(builder) == ["steps-from-worker"]
    assert edges(builder, "worker-call-steps", stacks=stacks) is None
    assert builder.load(stacks=stacks).rank().frames.height == (3 if stacks else 0)


def test_nested_calls_of_workers_are_one_and_others_none() -> None:
    builder = worked(0, 100, 200)
    for start in (0, 100, 200):
        builder.python("vllm/v1/worker/gpu_worker.py(12): execute_model", start + 5, 60)
        builder.python("vllm/v1/worker/gpu_model_runner.py(12): _execute_model_state", start + 5, 6)
        builder.python("my.py(12): execute_model_twice", start + 5, 6)
    assert edges(builder) == [(0, 100), (100, 200), (200, 270)]


def test_of_several_threads_with_calls_the_one_that_launches_tells_steps() -> None:
    builder = worked(0, 100, 200)
    for start in (10, 50, 90, 130, 170):
        builder.python("vllm/executor.py(1): execute_model", start, 30, thread=7)
    assert edges(builder) == [(0, 100), (100, 200), (200, 270)]


def test_marks_of_batches_count_more_than_calls_and_calls_more_than_ranges() -> None:
    builder = worked(0, 100, 200)
    for start in (0, 50, 100, 150):
        builder.annotation("timed region", start, 50)
    assert told(builder) == ["steps-from-worker"]
    for start in (0, 100):
        builder.annotation("execute_context_0(0)_generation_8(8)", start, 70)
    assert told(builder) == []


def test_both_decoders_read_the_same_calls() -> None:
    """A file that is too large for the careful one, in which it decodes single events."""
    builder = worked(0, 100, 200)
    for start in range(300):
        builder.python("train.py(1): helper", start, 1).python("a.py(2): the_execute_model", start, 1)
    data = json.dumps(builder.to_dict()).encode()
    found = [decode_with(data, size) for size in (len(data) + 1, 1)]
    assert found[0].annotations.equals(found[1].annotations)
    assert found[0].annotations["name"].to_list() == ["execute_model"] * 3
    assert found[0].ledger.equals(found[1].ledger)


def decode_with(data: bytes, small_bytes: int) -> RankTrace:
    return decode.decode(io.BytesIO(data), "test", small_bytes=small_bytes)


def replayed(*rounds: str, pause: float = 100, node_ids: bool = True, call: str = "cudaGraphLaunch") -> TraceBuilder:
    """Rounds of graph launches 20 apart, a letter for each graph of two kernels, with a pause between rounds."""
    builder, now = TraceBuilder(), 0.0
    for letters in rounds:
        for letter in letters:
            builder.kernel("k", now + 5, 8, launch=now, call=call, **node(letter, 0, node_ids))
            kernel = builder.events[-1]
            builder.event("kernel", "k", now + 13, 5, 7, kernel["args"] | node(letter, 1, node_ids), pid=0)
            now += 20
        now += pause
    return builder


def node(letter: str, place: int, node_ids: bool) -> dict[str, int]:
    return {"graph node id": 100 * ord(letter) + place} if node_ids else {}


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_rounds_of_graph_launches_that_repeat_are_steps(call: str) -> None:
    builder = replayed("abc", "abc", "abc", call=call)
    assert edges(builder) == [(0, 160), (160, 320), (320, pytest.approx(365, abs=0.01))]
    assert told(builder) == ["steps-from-graphs"]
    assert edges(builder, "graph-launch-steps") is None


def test_a_recording_that_begins_within_a_round_has_steps_from_the_next_one_on() -> None:
    assert [start for start, _ in edges(replayed("bc", "abc", "abc", "abc")) or []] == [140, 300, 460]


def test_graphs_for_two_sizes_of_batches_are_steps_each() -> None:
    assert [start for start, _ in edges(replayed("ab", "ab", "ab", "de", "de")) or []] == [0, 140, 280, 420, 560]


def test_one_graph_that_repeats_is_a_step_each_time() -> None:
    assert [start for start, _ in edges(replayed("a", "a", "a", "a", node_ids=False)) or []] == [0, 120, 240, 360]


def test_graphs_that_do_not_repeat_tell_no_steps() -> None:
    assert edges(replayed("abcdef")) is None
    assert edges(replayed("a")) is None


def test_graphs_that_are_little_of_the_work_tell_no_steps() -> None:
    assert edges(replayed("a", "a", "a").kernel("train", 1010, 500, launch=1000)) is None


def test_ranks_with_as_many_ranges_share_their_steps() -> None:
    steps, notes = find_steps_of_ranks(job(ranges(*["timed region"] * 3), ranges(*["timed region"] * 3)).ranks)
    assert [table.height for table in steps] == [3, 3]
    assert [note.code for note in notes] == ["steps-from-ranges"]


def test_ranks_with_other_numbers_of_ranges_are_one_step_each() -> None:
    steps, _ = find_steps_of_ranks(job(ranges(*["timed region"] * 3), ranges(*["timed region"] * 4)).ranks, NO_RULES)
    assert all(is_whole_trace(table) for table in steps)


def test_ranges_of_nsight_tell_steps_and_preparation_alike(tmp_path: Path) -> None:
    trace = ranges(*["timed region"] * 5, at=10_000).annotation("init_model", 0, 9000)
    trace.kernel("copy", 100, 8000, launch=50)
    tables = build_tables(trace.load().rank())
    steps = find_steps(load(write_database(tmp_path / "report.sqlite", tables), cache=False).rank())
    assert steps["found_by"].to_list() == ["steps-from-ranges"] * 5
    assert ((steps["end_ns"] - steps["start_ns"]) / 1000).to_list() == [80] * 5
    single = tables["NVTX_EVENTS"].filter(pl.col("text") == "init_model")
    whole = {**tables, "NVTX_EVENTS": single}
    steps = find_steps(load(write_database(tmp_path / "one.sqlite", whole), cache=False).rank())
    assert steps["found_by"].to_list() == ["step-without-setup"]
    assert (steps["end_ns"][0] - steps["start_ns"][0]) / 1000 == pytest.approx(10_415 - 9000, abs=0.01)
