"""Ranks joined at their collectives; microseconds."""

import polars as pl
import pytest

from tests.jobs import gradient_step, job, recorded
from tracekit.graph.ranks import Collectives, join_ranks
from tracekit.messages.requests import (
    COLLECTIVES_AMBIGUOUS,
    COLLECTIVES_APART,
    COLLECTIVES_UNEVEN,
    COLLECTIVES_UNLIKE,
    MESSAGES_UNPAIRED,
)
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace
from tracekit.workload.kernel_table import build_kernel_table

TRANSFER = 50


def joined(trace: Trace) -> Collectives:
    tables = [
        build_kernel_table(rank).select(pl.lit(rank.rank, pl.Int64).alias("rank"), pl.all()) for rank in trace.ranks
    ]
    return join_ranks(pl.concat(tables))


def two_ranks(clock: float = 0, **args):
    """Rank 1 comes 200 later than rank 0; its clock may be ahead."""
    return job(gradient_step(150, 412, **args), gradient_step(350, 412, clock=clock, **args))


@pytest.mark.parametrize("clock", [0, 5, 1_000_000])
def test_who_comes_first_waits(clock):
    found = joined(two_ranks(clock))
    assert found.table.select("rank", "wait_us", "transfer_us").rows() == [(0, 200, TRANSFER), (1, 0, TRANSFER)]
    assert found.clock_offset_ns == {0: 0, 1: clock * 1000}
    assert found.mismatches == ()


def many(*collectives: tuple[float, float, dict]) -> TraceBuilder:
    """Collectives that each start and end at a time."""
    builder = TraceBuilder().op("aten::first", 0, 1)
    for start, end, args in collectives:
        builder.kernel("ncclDevKernel", start, end - start, stream=9, **args)
    return builder


def test_ids_tell_which_belong_together_where_one_rank_misses_the_first():
    one, two = (recorded() | {"Comms Id": number} for number in (71, 72))
    found = joined(job(many((100, 150, one), (300, 350, two)), many((200, 350, two))))
    assert found.table.select("rank", "wait_us").rows() == [(1, 100), (0, 0)]


def test_numbers_in_the_group_tell_it_too():
    one, two = (recorded() | {"Seq": number} for number in (8, 9))
    found = joined(job(many((100, 150, one), (300, 350, two)), many((200, 350, two))))
    assert found.table["wait_us"].to_list() == [100, 0]


def test_by_order_the_ranks_must_have_as_many():
    found = joined(job(many((100, 150, recorded()), (300, 350, recorded())), many((200, 350, recorded()))))
    assert found.table.is_empty()
    assert found.mismatches == (COLLECTIVES_UNEVEN(collectives=3),)


def test_one_id_with_two_sizes_is_no_collective():
    args = [recorded(nelems=nelems) | {"Comms Id": 5} for nelems in (100, 200)]
    found = joined(job(*(many((100, 150, arg)) for arg in args)))
    assert found.table.is_empty()
    assert found.mismatches == (COLLECTIVES_UNLIKE(collectives=2),)


def test_ranks_of_an_all_to_all_may_send_different_amounts():
    args = [recorded("all_to_allv", nelems) for nelems in (100, 200)]
    assert joined(job(*(many((100, 150, arg)) for arg in args))).table.height == 2


def stages(*, peers: bool) -> Trace:
    """Rank 0 sends to 1 at 100, which computes and sends to 2 at 400; each numbers its own messages."""

    def message(kind: str, number: int, peer: int) -> dict:
        other = {"Dst Rank" if kind == "send" else "Src Rank": peer} if peers else {}
        return recorded(kind, ranks="[0, 1, 2]") | {"Seq": number, "Comms Id": number} | other

    return job(
        many((100, 110, message("send", 1, 1))),
        many((40, 110, message("recv", 1, 0)), (400, 410, message("send", 2, 2))),
        many((30, 410, message("recv", 1, 1))),
    )


def test_messages_of_a_pipeline_belong_together_by_sender_and_receiver():
    found = joined(stages(peers=True))
    assert found.mismatches == ()
    assert found.table.sort("rank", "arrival_ns").select("rank", "size", "wait_us", "transfer_us").rows() == [
        (0, 2, 0, 10),
        (1, 2, 60, 10),
        (1, 2, 0, 10),
        (2, 2, 370, 10),
    ]


def test_messages_whose_other_rank_is_not_recorded_are_not_joined():
    found = joined(stages(peers=False))
    assert found.table.is_empty()
    assert found.mismatches == (MESSAGES_UNPAIRED(collectives=4),)


def test_what_does_not_coincide_is_no_collective():
    """The last two of three meet; the first one's ranks ended 5 ms apart."""
    kinds = [recorded(), recorded("_allgather_base"), recorded("_allgather_base", 2000)]
    here = many(*((start, start + 50, kind) for start, kind in zip((0, 20_000, 30_000), kinds, strict=True)))
    there = many(*((start, start + 50, kind) for start, kind in zip((5_000, 20_000, 30_000), kinds, strict=True)))
    found = joined(job(here, there))
    assert found.table["kind"].to_list() == ["all_gather"] * 4
    assert found.mismatches == (COLLECTIVES_APART(collectives=1),)


def test_groups_side_by_side():
    """Ranks 0 and 1 are one group, 2 and 3 another, and all four a third; rank 3's clock is 40 ahead."""
    pairs, everyone = ("[0, 1]", "[0, 1]", "[2, 3]", "[2, 3]"), recorded(ranks="[0, 1, 2, 3]", name="1")
    starts, clocks = (100, 120, 100, 190), (0, 0, 0, 40)
    ranks = [
        many(
            (start + clock, (150 if i < 2 else 220) + clock, recorded(ranks=pair)), (300 + clock, 400 + clock, everyone)
        )
        for i, (pair, start, clock) in enumerate(zip(pairs, starts, clocks, strict=True))
    ]
    found = joined(job(*ranks))
    pairwise = found.table.filter(pl.col("size") == 2).sort("rank")
    assert pairwise["wait_us"].to_list() == [20, 0, 90, 0]
    assert pairwise["group"].n_unique() == 2
    assert found.clock_offset_ns[3] == 40_000


def test_groups_that_are_not_recorded_cannot_be_told_apart():
    bare = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 10, "Group size": 2}
    found = joined(job(*(many((100, 150, bare)) for _ in range(4))))
    assert found.table.is_empty()
    assert found.mismatches == (COLLECTIVES_AMBIGUOUS(collectives=4),)


def test_the_root_of_a_broadcast_waits_for_none():
    """Rank 0 sends from 100 to 110; rank 1, there since 50, has it at 115; rank 2 comes at 200."""
    args = recorded("broadcast", ranks="[0, 1, 2]")
    ranks = [many((start, end, args)) for start, end in ((100, 110), (50, 115), (200, 206))]
    found = joined(job(*ranks)).table.sort("rank")
    assert found["wait_us"].to_list() == [0, 50, 0]
    assert found["transfer_us"].to_list() == [10, 15, 6]


def test_ranks_without_common_collectives_have_clocks_of_their_own():
    found = joined(job(many((100, 150, recorded(ranks="[0, 7]"))), many((100, 150, recorded(ranks="[1, 8]")))))
    assert found.table.is_empty()
    assert found.clock_offset_ns == {0: 0}
