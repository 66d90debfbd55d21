"""The doctor looks at every rank of a job, and names the ones that are worse than others; microseconds."""

from collections.abc import Callable

import pytest

from tests.codes import list_codes
from tests.jobs import recorded
from tracekit.doctor import Diagnosis, Status, examine
from tracekit.errors import StepError
from tracekit.ingest.ranks import combine_ranks
from tracekit.messages.traces import STEPS_WITHOUT_GPU_WORK
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

pytestmark = pytest.mark.heavy

STEPS = 4


def build_rank(rank: int, ranks: int) -> TraceBuilder:
    """Steps of 1,000: three kernels and an all-reduce of 100 in each."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"rank": rank, "world_size": ranks}
    group = recorded(nelems=1 << 20, ranks=str(list(range(ranks))))
    for number in range(STEPS):
        at = 1000 * number
        builder.step(number, at, 950)
        for kernel in range(3):
            start = at + 100 + 210 * kernel
            builder.op("aten::mm", at + 5 + 20 * kernel, 15, dims=[[512, 512], [512, 512]], types=["float", "float"])
            builder.kernel("sgemm", start, 200, launch=at + 7 + 20 * kernel)
        builder.kernel("ncclDevKernel_AllReduce", at + 750, 100, launch=at + 80, **group)
        builder.call("cudaDeviceSynchronize", at + 90, 770)
    return builder


def load_job(spoil: Callable[[TraceBuilder], object], spoilt: tuple[int, ...] = (1,), ranks: int = 3) -> Trace:
    builders = [build_rank(rank, ranks) for rank in range(ranks)]
    for rank in spoilt:
        spoil(builders[rank])
    return combine_ranks([builder.load().rank() for builder in builders])


def diagnose(trace: Trace) -> Diagnosis:
    return examine(trace, prepare_run(trace, rank=0), measure=lambda rank: prepare_run(trace, rank=rank))


def keep(where: Callable[[dict], bool]) -> Callable[[TraceBuilder], None]:
    def spoil(builder: TraceBuilder) -> None:
        builder.events = list(filter(where, builder.events))

    return spoil


def lose_every_other(name: str) -> Callable[[TraceBuilder], None]:
    def spoil(builder: TraceBuilder) -> None:
        lost = [id(event) for event in builder.events if event["cat"] == "kernel" and event["name"] == name][::2]
        builder.events = [event for event in builder.events if id(event) not in lost]

    return spoil


def overlap(builder: TraceBuilder) -> None:
    for event in builder.events:
        if event["name"] == "sgemm":
            event["dur"] = 400


def forget_shapes(builder: TraceBuilder) -> None:
    for event in builder.events:
        event["args"].pop("Input Dims", None)


def forget_launches(builder: TraceBuilder) -> None:
    for event in builder.events:
        if event["cat"] == "cuda_runtime":
            event["args"].pop("correlation")


def forget_times(builder: TraceBuilder) -> None:
    for event in builder.events[::7]:
        event["ts"] = None


def forget_sizes(builder: TraceBuilder) -> None:
    for event in builder.events:
        event["args"].pop("In msg nelems", None)
        event["args"].pop("Out msg nelems", None)


def test_a_sound_job_names_no_rank():
    found = diagnose(load_job(lambda builder: None))
    assert found.ranks_examined == 3
    assert not {"rank-checked", "ranks-checked"} & {check.evidence.code for check in found.checks}


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        (lose_every_other("sgemm"), "launches_without_kernel"),
        (forget_shapes, "shapes"),
        (forget_launches, "kernels_without_launch"),
        (keep(lambda event: event["cat"] != "cuda_runtime"), "cpu_activity"),
        (keep(lambda event: not event["name"].startswith("ProfilerStep")), "steps"),
        (overlap, "times"),
        (forget_times, "events"),
        (forget_sizes, "collective_sizes"),
        (lambda builder: builder.metadata.pop("deviceProperties"), "gpu"),
        (lambda builder: builder.metadata.update(with_stack=1), "overhead"),
        (lambda builder: [builder.call("cudaMalloc", 1000 * number + 91, 300) for number in range(STEPS)], "warm"),
    ],
)
def test_a_spoilt_rank_is_named(spoil, check):
    sound, found = diagnose(load_job(lambda builder: None)), diagnose(load_job(spoil))
    before, after = ({one.name: one for one in each.checks} for each in (sound, found))
    assert check not in before or before[check].status is Status.OK
    assert after[check].status is not Status.OK
    assert (after[check].evidence.code, after[check].evidence.values["rank"]) == ("rank-checked", 1)
    assert found.grade >= "B"


def test_the_first_rank_is_named_too():
    found = {check.name: check for check in diagnose(load_job(forget_shapes, (0,))).checks}
    assert found["shapes"].evidence.values["rank"] == 0


def test_several_spoilt_ranks_are_counted():
    found = {check.name: check for check in diagnose(load_job(forget_shapes, (1, 2))).checks}
    assert found["shapes"].evidence.code == "ranks-checked"
    assert (found["shapes"].evidence.values["rank"], found["shapes"].evidence.values["more"]) == (1, 1)


def test_what_all_ranks_lack_names_none():
    found = {check.name: check for check in diagnose(load_job(forget_shapes, (0, 1, 2))).checks}
    assert found["shapes"].evidence.code == "shapes-missing"


@pytest.mark.parametrize("spoilt", [(0,), (1,), (1, 2)])
def test_ranks_that_lost_their_collectives_are_named_and_left_out(spoilt):
    trace = load_job(keep(lambda event: not event["name"].startswith("nccl")), spoilt)
    (check,) = [check for check in diagnose(trace).checks if check.name == "ranks"]
    told = {"ranks": "-".join(map(str, spoilt)), "collectives": STEPS * len(spoilt), "launches": STEPS * len(spoilt)}
    assert (check.status, check.evidence.code, check.evidence.values) == (Status.FAIL, "ranks-lack-collectives", told)
    run = prepare_run(trace)
    assert [rank.rank for rank in run.ranks] == [rank for rank in range(3) if rank not in spoilt]
    assert "ranks-lack-collectives" in list_codes(run.provenance.job_warnings)


def test_a_collective_lost_at_the_edge_leaves_no_rank_out():
    """One of 11: recordings end while collectives run."""
    builders = [build_rank(rank, 2) for rank in range(2)]
    for builder in builders:
        for number in range(7):
            builder.kernel("ncclDevKernel_AllReduce", 4000 + 100 * number, 50, launch=3990, **recorded())
    builders[1].events = [event for event in builders[1].events if event["cat"] != "kernel" or event["ts"] < 4600]
    trace = combine_ranks([builder.load().rank() for builder in builders])
    assert len(prepare_run(trace).ranks) == 2


def test_a_rank_that_cannot_be_measured_fails():
    trace = load_job(lambda builder: None)

    def measure(rank: int | None) -> MeasuredRun:
        if rank == 2:
            raise StepError(STEPS_WITHOUT_GPU_WORK())
        return prepare_run(trace, rank=rank)

    found = examine(trace, prepare_run(trace, rank=0), measure=measure)
    (check,) = [check for check in found.checks if check.name == "unmeasured"]
    assert (check.status, check.evidence.values["rank"]) == (Status.FAIL, 2)
