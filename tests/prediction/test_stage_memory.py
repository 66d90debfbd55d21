"""The memory of each pipeline stage, by hand."""

from dataclasses import replace

import pytest

from tests.codes import has_code
from tracekit.models.captured import CaptureFacts, LayerMemory
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.prediction.stage_memory import StageNeeds, compute_stage_needs

LAYERS = LayerMemory(
    kinds=((100, 10, 3),),
    order=(0,) * 4,
    first_parameter_bytes=50,
    first_kept_bytes=1,
    last_parameter_bytes=60,
    last_extra_bytes=40,
)
FACTS = CaptureFacts(
    gpu="h100-sxm",
    parameters=255,
    parameter_bytes=510,
    held_bytes=510 + 1020 + 7,
    peak_bytes=4000,
    trains=True,
    state_bytes=1020,
    peaks=((0, 81, 0), (510, 0, 0)),
    layers=LAYERS,
)
"""Four layers between an embedding and a head; two moments as large as the parameters, and inputs of 7 bytes."""


def compute(layout: Layout, part: float = 1.0, *, most: bool = False, facts: CaptureFacts = FACTS) -> StageNeeds:
    """Compute what the stages of a layout hold."""
    return compute_stage_needs(facts, LAYERS, (Layout(), layout), part, most=most)


def test_stage_s_of_1f1b_holds_the_passes_of_pp_minus_s() -> None:
    found = compute(Layout(pp=4, micro_batches=8))
    assert found.passes.tolist() == [4, 3, 2, 1]
    # Parameters, gradients and two moments: four times 150, 100, 100 and 160 bytes.
    assert found.state_bytes.tolist() == [600, 400, 400, 640]
    # Beside inputs of 7 bytes: 4 x (10 + 1), 3 x 10, 2 x 10 and 10, and the most of a pass on top, of the head 40.
    assert found.peak_bytes.tolist() == [600 + 7 + 44 + 3, 400 + 7 + 30 + 3, 400 + 7 + 20 + 3, 640 + 7 + 10 + 40]
    assert found.fullest == 3


def test_no_more_passes_are_held_than_there_are_micro_batches() -> None:
    assert compute(Layout(pp=4, micro_batches=2)).passes.tolist() == [2, 2, 2, 1]
    many = [compute(Layout(pp=4, micro_batches=count)).peak_bytes.tolist() for count in (8, 1024)]
    assert many[0] == many[1]


def test_interleaved_stages_hold_chunks_and_deferred_gradients_more_passes() -> None:
    """Two chunks of a layer on each of two stages: 2 x (2 - s - 1) + 2 forward passes ahead, and one more."""
    found = compute(Layout(pp=2, chunks=2, micro_batches=4))
    assert found.passes.tolist() == [5, 3]
    assert found.state_bytes.tolist() == [4 * 250, 4 * 260]
    assert compute(Layout(pp=4, micro_batches=8, zero_bubble=True)).passes.tolist() == [4, 4, 4, 4]


def test_a_larger_batch_and_tensor_parallel_ranks_scale_activations() -> None:
    plain, twice = (compute(Layout(pp=4, micro_batches=8, batch=batch)) for batch in (1.0, 2.0))
    assert (twice.peak_bytes - plain.peak_bytes).tolist() == [47, 33, 23, 50]
    halved = compute(Layout(tp=2, pp=4, micro_batches=8), 0.5)
    assert halved.state_bytes.tolist() == (plain.state_bytes / 2).tolist()
    assert halved.peak_bytes[0] == 300 + 7 + 47 / 2


def test_replicas_hold_buckets_and_shards_a_part_of_the_moments() -> None:
    whole, ddp = (compute(Layout(dp=dp, pp=4, micro_batches=8)) for dp in (1, 2))
    assert (ddp.peak_bytes - whole.peak_bytes).tolist() == [150, 100, 100, 160]
    least, most = (compute(Layout(dp=4, pp=4, micro_batches=8, sharded=True), most=most) for most in (False, True))
    assert least.state_bytes[1] == 100 + 100 + 200 / 4
    assert most.state_bytes[1] == 100 + 100 + 200 / 4 + 2 * 100 / 4


def test_the_update_may_take_more_than_the_passes() -> None:
    facts = replace(FACTS, peaks=((0, 81, 0), (510, 0, 5100)))
    assert compute(Layout(pp=4, micro_batches=8), facts=facts).peak_bytes[1] == 400 + 7 + 1000


def test_layers_that_do_not_divide_fill_stages_without_ends_first() -> None:
    three = compute(Layout(pp=3, micro_batches=6)).state_bytes
    assert three.tolist() == [4 * 150, 4 * 200, 4 * 160]
    with pytest.raises(LayoutError, check=has_code("layers-indivisible")):
        compute(Layout(pp=8, micro_batches=8))
