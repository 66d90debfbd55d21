"""What the doctor finds: for every check a trace on which it fires and one on which it doesn't."""

from dataclasses import replace

import pytest

from tests.graph.test_replays import replays
from tracekit.doctor import Status, examine
from tracekit.doctor.model import Check, choose_most_helpful, grade
from tracekit.doctor.recipe import suggest
from tracekit.ingest.ledger import EventCounts, build_ledger
from tracekit.messages.traces import EVENTS_LOST, EVENTS_READ, EVENTS_UNTIMED, PHASE_NOT_READ, SHAPES_NOT_RECORDED
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

GEMM = "ampere_sgemm_128x64_nn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SIDES = [[2048, 2048], [2048, 2048]]
STEP_US = 1000


def built(
    *,
    builder=None,
    steps=3,
    marks=True,
    shapes=True,
    op="aten::mm",
    call="cudaLaunchKernel",
    lengths=None,
    first=0,
):
    """Steps of one op and one kernel each."""
    builder = builder or TraceBuilder()
    at = first
    for number in range(steps):
        length = lengths[number] if lengths else STEP_US
        if marks:
            builder.step(number, at, length - 5)
        if op:
            dims, types = (SIDES, ["float", "float"]) if shapes else (None, None)
            builder.op(op, at + 5, 30, dims=dims, types=types)
        builder.kernel(GEMM, at + 30, length - 100, launch=at + 10, call=call)
        at += length
    return builder


def diagnose(builder, *, source_gpu=None, **changes):
    trace = builder.load()
    trace = Trace((replace(trace.ranks[0], **changes), *trace.ranks[1:]))
    return examine(trace, prepare_run(trace, source_gpu=source_gpu))


def sync(builder, name, **args):
    event = {"ph": "X", "cat": "cuda_sync", "name": name, "pid": 0, "tid": 7, "ts": 40, "dur": 1, "args": args}
    builder.events.append(event)
    return builder


def count_events(counts):
    """The ledger of a file with these events."""
    found = EventCounts()
    for template, count in counts.items():
        found.add(template, "kernel", count=count)
    return build_ledger(found)


def job(builder, world_size, rank=0):
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
    return builder


def two_streams():
    builder = built()
    for number in range(3):
        at = number * STEP_US
        builder.op("aten::mm", at + 40, 20, dims=SIDES, types=["float", "float"])
        builder.kernel(GEMM, at + 60, 600, launch=at + 45, stream=20)
    return builder


def communicating(**args):
    builder = job(built(), 2)
    for number in range(3):
        at = number * STEP_US
        builder.op("record_param_comms", at + 40, 20, **args)
        builder.kernel(NCCL, at + 935, 45, launch=at + 45)
    return builder


SIZED = {
    "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2, "dtype": "Float",
}  # fmt: skip


def with_calls(name, *, launches_nothing=True, count=3, dur=200):
    builder = built()
    for number in range(count):
        builder.call(name, number * STEP_US + 60, dur)
    return builder


def orphans():
    builder = built()
    for number in range(3):
        builder.kernel(GEMM, number * STEP_US + 935, 50)
    return builder


def capturing():
    builder = built().call("cudaStreamBeginCapture_v10000", 50, 5)
    for at in range(60, 560, 10):
        builder.call("cudaLaunchKernel", at, 5)
    return builder.call("cudaStreamEndCapture_v10000", 600, 5)


def of_three_kinds(dur):
    """Kernels that move 128 MiB each: 66 us at an A100's full bandwidth."""
    builder, sides = TraceBuilder(), [[4096, 4096]]
    kinds = (
        ("aten::gelu", "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>"),
        ("aten::_softmax", "void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>"),
        (
            "aten::native_layer_norm",
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
        ),
    )
    for number in range(10 * len(kinds)):
        op, kernel = kinds[number % len(kinds)]
        builder.op(op, 100 * number, 30, dims=sides, types=["float"])
        builder.kernel(kernel, 5000 + (dur + 2) * number, dur, launch=100 * number + 5)
    return builder


FIRES = {
    "gpu": (lambda: built(builder=TraceBuilder(device=None)), {}, Status.FAIL),
    "cpu_activity": (lambda: built(op=None, marks=False), {}, Status.FAIL),
    "shapes": (lambda: built(shapes=False), {}, Status.FAIL),
    "known_ops": (lambda: built(op="mylib::odd"), {}, Status.FAIL),
    "graphs": (lambda: built(call="cudaGraphLaunch", op="mylib::replay", shapes=False), {}, Status.FAIL),
    "collective_sizes": (communicating, {}, Status.WARN),
    "idle": (lambda: replays(*[100] * 8), {}, Status.FAIL),
    "times": (lambda: built().kernel(GEMM, 3e6, 10, launch=700), {}, Status.WARN),
    "steps": (lambda: built(marks=False, steps=1), {}, Status.WARN),
    "steady": (lambda: built(steps=4, lengths=[1000, 1000, 1300, 1000]), {}, Status.WARN),
    "warm": (lambda: with_calls("cudaMalloc", dur=100), {}, Status.WARN),
    "speed": (lambda: of_three_kinds(400), {}, Status.WARN),
    "kernels_without_launch": (orphans, {}, Status.WARN),
    "launches_without_kernel": (lambda: with_calls("cuLaunchKernelEx", dur=5), {}, Status.FAIL),
    "overhead": (built, {"metadata": {"with_stack": 1, "record_shapes": 1}}, Status.WARN),
    "syncs": (two_streams, {}, Status.WARN),
    "ranks": (communicating, {}, Status.WARN),
    "events": (
        built,
        {
            "warnings": (EVENTS_LOST(lost=30, events=60, offset=44_182_113),),
            "ledger": count_events({EVENTS_READ: 30, EVENTS_LOST: 30}),
        },
        Status.FAIL,
    ),
}

QUIET = {
    "gpu": (built, {}),
    "cpu_activity": (built, {}),
    "shapes": (built, {}),
    "known_ops": (built, {}),
    "graphs": (lambda: built(call="cudaGraphLaunch"), {}),
    "collective_sizes": (lambda: communicating(**SIZED), {}),
    "idle": (built, {}),
    "times": (built, {}),
    "steps": (built, {}),
    "steady": (lambda: built(steps=4, lengths=[2000, 1000, 1010, 1000]), {}),
    "warm": (lambda: with_calls("cudaMalloc", dur=1), {}),
    "speed": (lambda: of_three_kinds(100), {}),
    "kernels_without_launch": (built, {}),
    "launches_without_kernel": (capturing, {}),
    "overhead": (built, {"metadata": {"record_shapes": 1, "with_stack": 0}}),
    "syncs": (lambda: sync(two_streams(), "Stream Wait Event", stream=20, wait_on_stream=7, correlation=999), {}),
    "ranks": (lambda: job(built(), 1), {}),
    "events": (built, {"warnings": (SHAPES_NOT_RECORDED(),)}),
}


def find(diagnosis, name):
    return next((check for check in diagnosis.checks if check.name == name), None)


@pytest.mark.parametrize("name", FIRES)
def test_a_check_fires(name):
    make, changes, status = FIRES[name]
    check = find(diagnose(make(), **changes), name)
    assert check.status is status
    assert check.cost
    assert any(digit in f"{check.evidence} {check.cost}" for digit in "0123456789")


@pytest.mark.parametrize("name", QUIET)
def test_a_check_stays_quiet(name):
    make, changes = QUIET[name]
    check = find(diagnose(make(), **changes), name)
    assert check is None or (check.status, check.cost, check.cost_pct, check.fix) == (Status.OK, None, 0.0, None)


def test_every_check_is_tested():
    names = {check.name for check in diagnose(communicating(), metadata={"with_stack": 1}).checks}
    assert names | {"graphs", "speed"} == set(FIRES) | {"replay"}
    assert set(FIRES) == set(QUIET)


def test_a_long_launch_loads_its_kernel_if_it_is_the_first_of_it():
    def warm(name, call="cudaLaunchKernel"):
        builder = built(steps=1, lengths=[5000]).kernel(name, 4940, 20, launch=1000, launch_dur=3900, call=call)
        return next(check for check in diagnose(builder).checks if check.name == "warm")

    assert warm("add").evidence.values["calls"] == 1
    assert warm("add").status is Status.FAIL
    assert warm(GEMM).evidence.values["calls"] == 0
    assert warm("add", "cudaGraphLaunch").evidence.values["calls"] == 0


def test_a_recording_that_does_not_note_its_options_is_not_said_to_be_without_stacks():
    assert find(diagnose(built(), metadata={"schemaVersion": 1}), "overhead") is None


def test_a_good_trace_is_an_a_and_needs_nothing():
    diagnosis = diagnose(built())
    assert (diagnosis.grade, diagnosis.best, diagnosis.snippet, diagnosis.warnings) == ("A", None, "", ())


def test_the_grade_counts_failures():
    assert diagnose(built(steps=1)).grade == "B"
    assert diagnose(built(shapes=False)).grade == "C"
    assert diagnose(built(builder=TraceBuilder(device=None), shapes=False)).grade == "D"


def test_warnings_about_separate_parts_fail_together():
    """12 and 9 % of the step with known work in neither are as bad as 21 % in one check."""

    def warn(name, cost):
        return Check(name, name, Status.WARN, suggest(name), suggest(name), cost)

    assert grade([warn("graphs", 12.0), warn("idle", 9.0)]) == "C"
    assert grade([warn("graphs", 12.0), warn("idle", 7.0)]) == "B"
    assert grade([warn("graphs", 12.0), warn("overhead", 60.0)]) == "B"


def test_an_unknown_gpu_costs_what_the_kernels_take():
    """Kernels of 900 in steps of 1000."""
    check = find(diagnose(built(builder=TraceBuilder(device=None))), "gpu")
    assert check.cost_pct == pytest.approx(90, abs=1)
    assert check.cost.code == "gpu-missing-cost"
    check = find(diagnose(built(builder=TraceBuilder(device=None), shapes=False)), "gpu")
    assert check.cost.values["kept_pct"] == pytest.approx(90, abs=1)


def test_a_synthetic_trace_is_said_to_be_one():
    builder = built()
    builder.metadata["synthetic"] = "made up"
    assert "times-synthetic" in [warning.code for warning in diagnose(builder).warnings]


def test_the_gpu_can_be_said():
    assert find(diagnose(built(builder=TraceBuilder(device=None)), source_gpu="a100-sxm-80gb"), "gpu").status == "ok"


def test_costs_are_shares_of_the_step():
    """The kernel runs for 900 of 1000 us, and nothing is known of its work."""
    assert find(diagnose(built(shapes=False)), "shapes").cost_pct == pytest.approx(90, abs=1)
    ledger = count_events({EVENTS_READ: 12, EVENTS_UNTIMED: 1000, PHASE_NOT_READ: 500})
    lost = find(diagnose(built(), warnings=(EVENTS_UNTIMED(events=1000),), ledger=ledger), "events")
    assert lost.cost_pct == pytest.approx(100 * 1000 / 1012)


def test_kernels_of_the_step_before_the_first_cost_nothing():
    """However long they are: 525 us here, a sixth of all."""
    check = find(diagnose(built().kernel(GEMM, -500, 525)), "kernels_without_launch")
    assert (check.status, check.cost_pct) == (Status.OK, 0)
    assert check.evidence.values == {"unlaunched": 1, "activities": 4, "early": 1}


def test_kernels_without_a_launch_amid_others_are_not_early():
    values = find(diagnose(orphans()), "kernels_without_launch").evidence.values
    assert values["unlaunched"] > 0
    assert "early" not in values


def test_what_costs_most_would_help_most():
    diagnosis = diagnose(two_streams(), metadata={"with_stack": 1})
    assert diagnosis.best.name == "syncs"
    assert diagnose(built(shapes=False, steps=1)).best.option == "record_shapes=True"


def test_what_fails_would_help_more_than_an_upper_bound():
    """However long the GPU is idle: not all of that is the profiler's."""
    on = suggest("with_stack=True")
    stacks = Check("overhead", "Overhead", Status.WARN, on, cost_pct=84.0, fix=suggest("with_stack=False"))
    shapes = Check("shapes", "Shapes", Status.FAIL, on, cost_pct=27.0, fix=suggest("record_shapes=True"))
    assert choose_most_helpful([stacks, shapes]) is shapes
    assert choose_most_helpful([stacks]) is stacks


def test_the_snippet_is_python_and_marks_what_was_missing():
    snippet = diagnose(two_streams()).snippet
    compile(snippet, "snippet", "exec")
    changed = [line for line in snippet.splitlines() if "# changed" in line]
    assert len(changed) == 2
    assert all("syncs" in line for line in changed)
    assert max(map(len, snippet.splitlines())) <= 78
    assert "record_shapes=True," in snippet


def test_amd_has_no_sync_events():
    builder = built(call="hipLaunchKernel", shapes=False)
    builder.kernel(GEMM, 60, 600, launch=45, stream=20, call="hipLaunchKernel")
    diagnosis = diagnose(builder)
    assert find(diagnosis, "syncs").status is Status.OK
    assert "sync_events" not in diagnosis.snippet


def test_waits_that_name_no_stream_are_said():
    unresolved = sync(two_streams(), "Stream Wait Event", stream=20, wait_on_stream=-1, correlation=999)
    check = find(diagnose(unresolved), "syncs")
    assert check.status is Status.WARN
    assert check.evidence.code == "syncs-unresolved"


def test_all_ranks():
    ranks = tuple(job(built(), 2, rank).load().ranks[0] for rank in range(2))
    trace = Trace(ranks)
    assert find(examine(trace, prepare_run(trace)), "ranks").evidence.code == "ranks-all-read"


def test_most_ranks_are_no_failure_and_their_waiting_is_told():
    """Two of four: of one alone it can't be told how much of its collectives is waiting."""
    ranks = tuple(job(communicating(), 4, rank).load().ranks[0] for rank in range(2))
    trace, one = Trace(ranks), Trace(ranks[:1])
    several, alone = (find(examine(read, prepare_run(read, rank=0)), "ranks") for read in (trace, one))
    assert (several.status, several.cost_pct) == (Status.WARN, 0)
    assert (several.cost.code, alone.cost.code) == ("ranks-missing-cost", "ranks-alone-cost")


def test_a_secret_is_warned_of_and_not_printed():
    secret = "hf_" + "a1B2" * 9
    diagnosis = diagnose(built().annotation(f"upload with {secret}", 900, 5))
    (warning,) = diagnosis.warnings
    assert "a Hugging Face token" in str(warning)
    assert secret not in str(warning)
    assert diagnosis.grade == "A"


def test_waiting_for_other_ranks_is_not_scaled_by_class():
    """In each step 100 of products without shapes and a collective that takes 10, but for 800 in the second step."""
    builder = TraceBuilder()
    for number, dur in enumerate((10, 800, 800, 10)):
        at = 1000 * number
        builder.step(number, at, 995).op("aten::mm", at + 5, 30).kernel(GEMM, at + 30, 100, launch=at + 10)
        args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, "Group size": 2}
        builder.kernel(NCCL, at + 150, dur, launch=at + 40, **args)
    found = {check.name: check for check in diagnose(job(builder, 2)).checks}
    assert found["shapes"].cost_pct == pytest.approx(10, abs=1)


@pytest.mark.parametrize(("lost", "cost", "status"), [(0, 0, Status.OK), (1, 25, Status.FAIL), (2, 100, Status.FAIL)])
def test_lost_kernels_cost_what_those_that_are_there_take(lost, cost, status):
    """The GPU works a quarter of the step: of two kernels one took that, and two that are lost nobody knows."""
    builder = TraceBuilder().op("aten::mm", 0, 1000)
    builder.kernel("Memset", 990, 0.1, launch=980, call="cudaMemsetAsync")
    for number in range(2):
        if number < 2 - lost:
            builder.kernel(GEMM, 100 + 300 * number, 250 / (2 - lost), launch=50 + 300 * number)
        else:
            builder.call("cudaLaunchKernel", 50 + 300 * number, 5)
    check = find(diagnose(builder), "launches_without_kernel")
    assert check.status is status
    assert check.cost_pct == pytest.approx(cost, abs=1)


@pytest.mark.parametrize(("left_out", "counts"), [("cuda_runtime", (3, 0)), ("cpu_op", (0, 3)), (None, (3, 3))])
def test_ops_and_calls_are_both_needed(left_out, counts):
    builder = built()
    builder.events = [event for event in builder.events if event["cat"] != left_out]
    (check,) = (one for one in diagnose(builder).checks if one.name == "cpu_activity")
    assert (check.evidence.values["ops"], check.evidence.values["calls"]) == counts
    assert (check.status is Status.OK) == (left_out is None)
