"""Replays of CUDA graphs that lack kernels which other replays of the same graph have."""

from hypothesis import given
from hypothesis import strategies as st

from tests.codes import find_message, list_codes
from tracekit.analysis.graph_replays import ReplayCounts, count_replayed_nodes
from tracekit.doctor import examine
from tracekit.doctor.model import Status
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import MAIN_THREAD, TraceBuilder


def replay_graphs(*replays: tuple[int, ...]) -> TraceBuilder:
    """One launch every 1,000 us, of a kernel of 100 us for each node."""
    builder = TraceBuilder()
    for i, nodes in enumerate(replays):
        begin, correlation = 1000 * i, 1000 + i
        builder.event("cuda_runtime", "cudaGraphLaunch", begin, 5, MAIN_THREAD, {"correlation": correlation})
        for place, node in enumerate(nodes):
            ids = {"correlation": correlation, "graph node id": node}
            builder.kernel(f"k{node}", begin + 10 + 100 * place, 100, **ids)
    return builder


def count(*replays: tuple[int, ...]) -> ReplayCounts:
    return count_replayed_nodes(replay_graphs(*replays).load().ranks[0])


def test_a_lost_kernel_is_missed_in_its_replay_alone():
    assert count((1, 2, 3), (1, 3), (1, 2, 3)) == ReplayCounts(replays=3, incomplete=1, nodes=8, missing=1)


def test_two_replays_that_lack_different_kernels():
    assert count((1, 2, 3), (1, 3, 4), (1, 2, 3, 4)) == ReplayCounts(replays=3, incomplete=2, nodes=10, missing=2)


def test_another_graph_with_the_same_kernels_is_no_replay_of_the_first():
    assert count((1, 2, 3), (11, 12)).missing == 0


def test_kernels_without_a_node_are_not_compared():
    assert count_replayed_nodes(TraceBuilder().kernel("k", 10, 100, launch=0).load().ranks[0]).replays == 0


@given(st.lists(st.sets(st.integers(1, 8), min_size=6), min_size=1, max_size=5))
def test_with_a_whole_replay_each_lacks_what_it_does_not_hold(replays):
    found = count(tuple(range(1, 9)), *map(tuple, replays))
    assert found.missing == sum(8 - len(nodes) for nodes in replays)


def test_the_report_and_the_doctor_say_so():
    traces = [replay_graphs((1, 2, 3), nodes, (1, 2, 3)).load() for nodes in ((1, 3), (1, 2, 3))]
    lost, whole = ((trace, prepare_run(trace, source_gpu="a100-sxm-80gb")) for trace in traces)
    told = find_message(build_report(lost[1]).warnings, "graph-replays-incomplete")
    assert (told.values["incomplete"], told.values["replays"], told.values["missing"]) == (1, 3, 1)
    assert "graph-replays-incomplete" not in list_codes(build_report(whole[1]).warnings)
    checks = {check.name: check.status for check in examine(*lost).checks}
    assert checks["graph_replays"] is not Status.OK
    assert "graph_replays" not in {check.name for check in examine(*whole).checks}
