"""Waits that nothing records: for room on the GPU, and long ones whose cause was over for a while; microseconds."""

from tests.graphs import edges, graph_of, play
from tracekit.graph import Graph
from tracekit.graph.edges import EdgeKind
from tracekit.testing import TraceBuilder

LARGE = {"grid": [100_000, 1, 1], "block": [256, 1, 1]}
SMALL = {"grid": [64, 1, 1], "block": [256, 1, 1]}


def two_streams() -> TraceBuilder:
    """Both streams have run a kernel each, so that what a launch takes is known: 4."""
    return TraceBuilder().kernel("first", 4, 2, launch=0, **SMALL).kernel("second", 14, 2, launch=10, stream=9, **SMALL)


def last_start(graph: Graph, *durations: float) -> float:
    timeline = play(graph, *durations)
    return float(timeline.activity_start_ns[-1]) / 1000


def held_back(**launch: list[int]) -> Graph:
    """A kernel of 1000 and, 5 before its end, one on the other stream that was launched at 200."""
    return graph_of(
        two_streams().kernel("big", 104, 1000, launch=100, **launch).kernel("small", 1099, 10, launch=200, stream=9)
    )


def test_a_kernel_waits_for_the_last_wave_of_one_that_fills_the_gpu():
    graph = held_back(**LARGE)
    assert (edges(graph, EdgeKind.OCCUPIED), edges(graph, EdgeKind.EVENT)) == (1, 0)
    assert last_start(graph, 2, 2, 1000, 10) == 1099
    assert last_start(graph, 2, 2, 400, 10) == 499
    assert last_start(graph, 2, 2, 20, 10) == 204


def test_a_kernel_that_fits_holds_nobody_back():
    assert edges(held_back(**SMALL), EdgeKind.OCCUPIED) == 0


def test_a_copy_of_unknown_direction_holds_nobody_back():
    builder = two_streams().kernel("unnamed copy", 104, 1000, launch=100, kind="gpu_memcpy")
    assert edges(graph_of(builder.kernel("small", 1099, 10, launch=200, stream=9)), EdgeKind.OCCUPIED) == 0


def test_without_the_number_of_sms_no_kernel_is_known_to_fill_the_gpu():
    builder = TraceBuilder(device=None).kernel("big", 104, 1000, launch=100, **LARGE)
    assert edges(graph_of(builder.kernel("small", 1099, 10, launch=200, stream=9)), EdgeKind.OCCUPIED) == 0


def long_wait(launch: float) -> Graph:
    """A kernel starts at 640, 40 after the first of two on the other stream ended, which were launched at 100, 110."""
    builder = two_streams().kernel("awaited", 104, 496, launch=100, **SMALL)
    builder.kernel("next", 602, 98, launch=110, **SMALL)
    return graph_of(builder.kernel("waiter", 640, 10, launch=launch, stream=9, **SMALL))


def test_a_long_wait_was_for_what_ended_last():
    graph = long_wait(launch=120)
    assert edges(graph, EdgeKind.EVENT) == 1
    assert last_start(graph, 2, 2, 496, 98, 10) == 640
    assert last_start(graph, 2, 2, 196, 98, 10) == 340


def test_nothing_waits_for_what_is_launched_later():
    assert edges(long_wait(launch=90), EdgeKind.EVENT) == 0


def kept_out(shared_bytes: int, blocks: int = 92) -> Graph:
    """As :func:`held_back`, of 108 SMs, but by two kernels whose blocks take as much shared memory as asked for."""
    blocks_of = {"grid": [blocks, 1, 1], "block": [384, 1, 1], "shared memory": shared_bytes}
    builder = two_streams().kernel("big", 104, 1000, launch=100, **blocks_of)
    return graph_of(builder.kernel("other", 1034, 10, launch=200, stream=9, **blocks_of))


def test_blocks_that_need_most_of_an_sm_keep_others_like_them_out():
    graph = kept_out(200 * 1024)
    assert edges(graph, EdgeKind.OCCUPIED) == 1
    assert last_start(graph, 2, 2, 400, 10) == 434


def test_blocks_that_can_share_an_sm_do():
    assert edges(kept_out(100 * 1024), EdgeKind.OCCUPIED) == 0


def test_a_kernel_on_few_sms_leaves_room():
    assert edges(kept_out(200 * 1024, blocks=50), EdgeKind.OCCUPIED) == 0
