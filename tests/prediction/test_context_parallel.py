"""Context parallelism: ranks split each sequence, and gather the keys and values of all before attention."""

import numpy as np
import polars as pl
import pytest

from predictors.work import count_attended_pairs
from tests.codes import find_message, has_code
from tests.prediction.test_reductions import HEADS, HIDDEN, TOKENS, WIDE, Model
from tracekit.parallelism.collective_calls import list_collectives
from tracekit.parallelism.context_parallel import insert_key_exchanges, insert_ring_exchanges, split_tokens
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest, apply_request
from tracekit.parallelism.process_groups import infer_group_roles
from tracekit.parallelism.relayout import relayout_collectives

KEYS_AND_VALUES = 2 * TOKENS * HIDDEN * 2
"""Bytes of both, in bf16."""


def split(model: Model, ranks: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the kernel table of whole sequences, and that of a rank."""
    program = model.run.program
    return program.kernels, split_tokens(program.kernels, program.trace.ops, ranks)


def count_pairs(kernels: pl.DataFrame, *, causal: bool) -> float:
    """Count the pairs of query and key of all attention."""
    attended = kernels.filter(family="attention")
    columns = {name: attended[name].to_numpy().astype(float) for name in ("q_len", "kv_len", "batch")}
    pairs = count_attended_pairs(columns | {"window": np.zeros(attended.height), "causal": np.array(causal)})
    return float((columns["batch"] * pairs).sum())


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_all_products_shrink_to_a_ranks_tokens(ranks: int) -> None:
    whole, part = split(Model(trains=True), ranks)
    flops = [
        table.filter(family="gemm").select(pl.col("m") * pl.col("n") * pl.col("k")).sum().item()
        for table in (whole, part)
    ]
    assert flops[0] == ranks * flops[1]
    up = part.filter(pl.col("family") == "gemm", pl.col("phase") == "forward", n=WIDE).row(0, named=True)
    assert (up["m"], up["n"], up["k"]) == (TOKENS // ranks, WIDE, HIDDEN)


def test_weight_gradients_sum_over_fewer_tokens() -> None:
    whole, part = split(Model(trains=True), 4)
    of_weights = (whole["family"] == "gemm") & (whole["k"] == TOKENS)
    assert of_weights.sum() == 4
    assert part.filter(of_weights)["k"].unique().to_list() == [TOKENS // 4]


def test_norms_shrink_to_a_ranks_tokens() -> None:
    assert split(Model(), 4)[1].row(3, named=True)["rows"] == TOKENS // 4


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ranks_queries_attend_to_all_keys(ranks: int) -> None:
    whole, part = split(Model(trains=True), ranks)
    attended = part.filter(family="attention")
    assert attended["q_len"].to_list() == [TOKENS // ranks] * 2
    assert attended["kv_len"].to_list() == [TOKENS] * 2
    assert count_pairs(whole, causal=False) == ranks * count_pairs(part, causal=False)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_attend_to_equal_parts_of_a_causal_mask(ranks: int) -> None:
    """Two chunks each, of 512 / (2 x ranks) queries; the mean one sees all but half of the others' keys."""
    program = Model(trains=True).run.program
    whole = program.kernels.with_columns(causal=pl.col("family") == "attention")
    part = split_tokens(whole, program.trace.ops, ranks)
    chunk = TOKENS // (2 * ranks)
    attended = part.filter(family="attention")
    assert attended.select("batch", "q_len", "kv_len").unique().rows() == [(2, chunk, TOKENS - (TOKENS - chunk) // 2)]
    assert count_pairs(whole, causal=True) == ranks * count_pairs(part, causal=True)


def test_keys_and_values_are_gathered_before_attention_and_gradients_scattered_behind() -> None:
    # Kernels: query, attention, projection, norm, up, gelu, down; backward 4 + 2 products, attention, 2 products.
    run = Model(trains=True).run
    grown = insert_key_exchanges(run.program).program
    rows = grown.kernels[run.kernels.height :]
    assert rows["collective"].to_list() == ["all_gather", "all_gather", "reduce_scatter"]
    assert rows["bytes"].to_list() == [KEYS_AND_VALUES] * 3
    assert rows["phase"].to_list() == ["forward", "backward", "backward"]
    line = grown.replay_timeline(np.append(run.kernels["dur_ns"] / 1e3, np.full(3, 7.0)))
    ends, starts = line.activity_end_ns, line.activity_start_ns
    own = run.kernels.height
    assert [int(np.flatnonzero(ends[:own] <= one).max()) for one in starts[own:]] == [0, 12, 13]
    assert [int(np.flatnonzero(starts[:own] >= one).min()) for one in ends[own:]] == [1, 13, 14]


@pytest.mark.parametrize("exchange_us", [7.0, 300.0])
def test_in_a_ring_blocks_are_sent_beside_attention(exchange_us: float) -> None:
    """What follows attention waits for it, or for the exchanges: one forward, two backward, one after the other."""
    run = Model(trains=True).run
    grown = insert_ring_exchanges(run.program).program
    own = run.kernels.height
    rows = grown.kernels[own:]
    assert rows.select("collective", "phase").rows() == [
        ("all_gather", "forward"),
        ("all_gather", "backward"),
        ("reduce_scatter", "backward"),
    ]
    line = grown.replay_timeline(np.append(run.kernels["dur_ns"] / 1e3, np.full(3, exchange_us)))
    ends, starts = line.activity_end_ns, line.activity_start_ns
    # Attention is kernel 1, and 13 of the backward pass; 0 and 12 come before it.
    for attention, sent in ((1, [own]), (13, [own + 1, own + 2])):
        assert min(starts[sent]) >= ends[attention - 1]
        assert min(starts[sent]) < ends[attention]
        assert starts[attention] < max(ends[sent]) or exchange_us < 100
        assert starts[attention + 1] >= max(ends[[attention, *sent]])


def test_a_ring_of_one_rank_is_refused() -> None:
    with pytest.raises(LayoutError, check=has_code("ring-of-one-rank")):
        apply_request(Layout(), LayoutRequest(cp_ring=True))
    assert str(apply_request(Layout(), LayoutRequest(cp=4, cp_ring=True))) == "4 ranks = dp 1 x cp 4 (ring)"


def test_grouped_queries_gather_fewer_heads() -> None:
    model = Model()
    model.heads[1:] = [[1, HEADS // 4, TOKENS, HIDDEN // HEADS]] * 2
    kernels = model.run.kernels.with_columns(kv_heads=pl.when(pl.col("family") == "attention").then(HEADS // 4))
    run = model.run
    program = run.program.replace_tables(kernels=kernels)
    assert insert_key_exchanges(program).program.kernels[-1:]["bytes"].to_list() == [KEYS_AND_VALUES // 4]


def test_a_rank_of_tensor_parallel_heads_gathers_its_own() -> None:
    program = insert_key_exchanges(Model(trains=True).run.program).program
    calls = list_collectives(program.kernels, 1)
    after = relayout_collectives(calls, infer_group_roles(program), Layout(), Layout(cp=4, tp=2, batch=3.0))
    assert after["bytes"].to_list() == [KEYS_AND_VALUES / 2 * 3] * 3
    assert after.select("ranks", "stride").unique().rows() == [(4, 2)]


def test_ranks_exchange_their_gradients_with_replicas() -> None:
    layout = apply_request(Layout(), LayoutRequest(world_size=16, cp=4, tp=2, fsdp=True))
    assert (layout.dp, layout.data_ranks, layout.fsdp_ranks, layout.get_group_size("dp")) == (2, 8, 8, 8)
    assert [layout.get_group_stride(role) for role in ("tp", "cp", "dp", "pp")] == [1, 2, 2, 16]
    assert str(layout) == "16 ranks = dp 2 (sharded) x cp 4 x tp 2"
    alone = apply_request(Layout(), LayoutRequest(cp=4, fsdp=True))
    assert (alone.world_size, alone.dp, alone.fsdp_ranks) == (4, 1, 4)


def test_one_rank_changes_nothing() -> None:
    model = Model(trains=True)
    assert apply_request(Layout(), LayoutRequest(cp=1)) == Layout()
    assert model.on(cp=1).step == model.on().step


def test_a_step_is_split_and_its_exchanges_and_gradients_are_added() -> None:
    model = Model(2, trains=True)
    whole, part = model.on(), model.on(cp=4)
    said = find_message(part.notes, "context-parallel-inserted").values
    assert (said["gathers"], said["scatters"], said["message_bytes"]) == (4, 2, 6 * KEYS_AND_VALUES)
    assert find_message(part.notes, "ddp-inserted")
    assert part.inserted_us["collective"] > 0
    assert part.step.kernel_time_us - part.inserted_us["collective"] < whole.step.kernel_time_us


def test_uneven_sequences_are_refused() -> None:
    with pytest.raises(LayoutError, check=has_code("context-parallel-indivisible")):
        split(Model(), 3)


def test_what_has_no_known_attention_is_refused() -> None:
    program = Model().run.program
    with pytest.raises(LayoutError, check=has_code("context-parallel-attention-unknown")):
        split_tokens(program.kernels.filter(pl.col("family") != "attention"), program.trace.ops, 2)
    recurrent = program.kernels.with_columns(family=pl.lit("linear_attention"))
    with pytest.raises(LayoutError, check=has_code("context-parallel-recurrent")):
        split_tokens(recurrent, program.trace.ops, 2)
