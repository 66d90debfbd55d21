"""Slack that can be worked out by hand; times in microseconds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import gradient_step, job
from tests.replay.test_critical import gpu_bound
from tests.replay.test_idle import run_of
from tests.test_properties import many, trace_of
from tracekit.analysis.critical_path import UNBOUNDED_SLACK_NS, compute_slack_ns, summarize_by_op
from tracekit.replay.engine import replay
from tracekit.run import prepare_run


def test_kernels_beside_the_longest_chain():
    """Eight kernels until 824; beside them a copy of 50 that starts at 70."""
    run = prepare_run(gpu_bound().kernel("memcpy", 70, 50, launch=60, stream=9).load())
    slack = compute_slack_ns(run.program)
    of_kernels = slack[run.graph.nodes.n_host :] / 1e3
    assert sorted(of_kernels) == [0] * 8 + [824 - 120]
    table = summarize_by_op(run.program, slack)
    assert table.select("op", "slack_us").rows() == [("aten::mm", 0.0), ("memcpy", 704.0)]
    assert table["time_us"].to_list() == [800.0, 50.0]


def test_ops_of_several_ranks_take_what_they_do_on_a_mean_one():
    run = prepare_run(job(gradient_step(150, 412), gradient_step(350, 412)))
    table = summarize_by_op(run.program, compute_slack_ns(run.program))
    assert dict(table.select("op", "time_us").rows()) == {"gemm": 250.0, "ncclDevKernel_AllReduce": 50.0}


@settings(max_examples=25, deadline=None)
@given(many, st.integers(0, 24))
def test_a_kernel_may_grow_by_its_slack_and_no_more(launches, which):
    run = run_of(trace_of(launches))
    slack = compute_slack_ns(run.program)[run.graph.nodes.n_host :]
    which = which % slack.size
    if slack[which] == UNBOUNDED_SLACK_NS:
        return

    def end(longer: int) -> int:
        durations = run.kernels["dur_ns"].to_numpy().copy()
        durations[which] += longer
        timeline = replay(run.graph, durations)
        return int(max(timeline.activity_end_ns.max(), timeline.start_ns[timeline.host_node_count - 1]))

    assert slack[which] >= 0
    assert end(int(slack[which])) == end(0)
    assert end(int(slack[which]) + 1000) == end(0) + 1000
    assert np.min(slack) >= 0
