"""The graph of two ranks, node by node, and what is read from it; microseconds.

Two ranks, each with a call that waits for nothing, a product, and an all-reduce behind it::

    rank 0   product 10..160,   all-reduce 162..412 (it waits until rank 1 comes at 362)
    rank 1   product 10..360,   all-reduce 362..412
"""

from functools import cache

import polars as pl
import pytest

from tests.jobs import gradient_step, job
from tracekit.analysis.critical_path import compute_critical_path, compute_resource_shares
from tracekit.analysis.idle import attribute_idle_time
from tracekit.analysis.idle_causes import IdleCause
from tracekit.graph.nodes import NONE
from tracekit.replay.engine import build_measured_timeline, replay
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

EARLY, REDUCE_0, LATE, REDUCE_1 = range(4)


def beginning_at(builder: TraceBuilder, clock: float = 0) -> TraceBuilder:
    """With a call first, so that a launcher isn't the first node of its rank."""
    return builder.op("aten::mm", clock, 30).call("cudaEventQuery", clock + 7, 2)


@cache
def joined() -> MeasuredRun:
    return prepare_run(job(beginning_at(gradient_step(150, 412)), beginning_at(gradient_step(350, 412))))


def test_every_kernel_keeps_the_call_that_launched_it():
    nodes = joined().graph.nodes
    assert nodes.launcher.shape == (4,)
    assert (nodes.launcher != NONE).all()
    assert nodes.names.gather(nodes.launcher).to_list() == ["cudaLaunchKernel"] * 4
    assert (nodes.start_ns[nodes.launcher] / 1000).tolist() == [0, 20, 0, 20]
    assert len(set(nodes.launcher.tolist())) == 4
    assert (nodes.correlation[nodes.launcher] != NONE).all()


def test_a_kernel_without_a_launch_has_none_in_the_joined_graph():
    early = gradient_step(150, 412)
    early.events = [event for event in early.events if event["ts"] != 0 or event["cat"] != "cuda_runtime"]
    nodes = prepare_run(job(early, gradient_step(350, 412))).graph.nodes
    assert nodes.launcher[0] == NONE
    assert nodes.names.gather(nodes.launcher[1:]).to_list() == ["cudaLaunchKernel"] * 3
    assert (nodes.start_ns[nodes.launcher[1:]] / 1000).tolist() == [20, 0, 20]


def test_lanes_of_ranks_are_apart():
    """A lane is a thread or a stream of one rank."""
    run = joined()
    nodes, n_host = run.graph.nodes, run.graph.nodes.n_host
    ranks = run.kernels["rank"].to_numpy()
    lanes = nodes.lane[n_host:]
    assert len({*lanes[ranks == 0].tolist()} & {*lanes[ranks == 1].tolist()}) == 0
    assert len({*lanes.tolist()}) == 4


@pytest.mark.parametrize("clock", [0, 70_000])
def test_nodes_lie_on_one_clock(clock):
    ahead = beginning_at(gradient_step(350, 412, clock=clock), clock)
    nodes = prepare_run(job(beginning_at(gradient_step(150, 412)), ahead)).graph.nodes
    assert (nodes.start_ns[nodes.n_host :] / 1000).tolist() == [10, 162, 10, 362]
    assert (nodes.end_ns[nodes.n_host :] / 1000).tolist() == [160, 412, 360, 412]


def sums(run: MeasuredRun) -> dict[tuple[int, str], float]:
    idle = attribute_idle_time(run.program, build_measured_timeline(run.graph))
    assert idle.segments["time_ns"].sum() == idle.steps["idle_ns"].sum()
    kernel_rank = run.kernels["rank"].to_list()
    found: dict[tuple[int, str], float] = {}
    for kernel, cause, time_ns in idle.segments.select("kernel", "cause", "time_ns").iter_rows():
        key = (kernel_rank[kernel], cause)
        found[key] = found.get(key, 0) + time_ns / 1000
    return found


def test_idle_causes_of_each_rank():
    """10 until the product runs, 2 between it and the all-reduce, and 200 in which rank 0 waits in the all-reduce."""
    assert sums(joined()) == {
        (0, IdleCause.LAUNCH_LATENCY): 10, (0, IdleCause.DEPENDENCY): 2, (0, IdleCause.RENDEZVOUS): 200,
        (1, IdleCause.LAUNCH_LATENCY): 10, (1, IdleCause.DEPENDENCY): 2,
    }  # fmt: skip


def test_waiting_behind_a_kernel_of_ones_own_is_not_idle():
    """Rank 0 multiplies elsewhere from 170 to 300, while its all-reduce waits: 8 and 62 of the 200 are left."""
    early = beginning_at(gradient_step(150, 412)).kernel("gemm", 170, 130, launch=40, stream=11)
    run = prepare_run(job(early, beginning_at(gradient_step(350, 412))))
    idle = attribute_idle_time(run.program, build_measured_timeline(run.graph))
    assert (idle.steps["idle_ns"] / 1000).to_list() == [10 + 2 + 8 + 62, 12]
    waited = idle.segments.filter(pl.col("cause") == IdleCause.RENDEZVOUS)
    assert waited["time_ns"].sum() / 1000 == 8 + 62
    assert idle.segments["time_ns"].sum() == idle.steps["idle_ns"].sum()


def test_the_critical_path_is_the_late_ranks():
    """10 from the launch of rank 1's product, 350 of it, 2 until its all-reduce, and 50 of that."""
    run = joined()
    for timeline in (build_measured_timeline(run.graph), replay(run.graph)):
        path = compute_critical_path(run.program, timeline)
        assert path.span_ns == 412_000
        of_kernels = path.segments.group_by("kernel", maintain_order=True).agg(pl.col("time_ns").sum())
        times = {kernel: time_ns / 1000 for kernel, time_ns in of_kernels.iter_rows()}
        assert times[LATE] >= 350
        assert sum(times.values()) == 412
        assert EARLY not in times


def test_of_the_critical_path_kernels_take_their_part():
    """Of 412: 350 in the product and 50 in the transfer of the all-reduce; the other 12 are latencies."""
    run = joined()
    shares = compute_resource_shares(run.program, replay(run.graph))
    assert shares["gpu"] == pytest.approx(100 * 350 / 412)
    assert shares["communication"] == pytest.approx(100 * 50 / 412)
    assert sum(shares.values()) == pytest.approx(100)
