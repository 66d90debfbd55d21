"""Replicas on slow links: compressed gradients, and parameters averaged every few steps."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message, has_code
from tests.layers import MIB
from tests.prediction.test_copies import Step
from tests.prediction.test_shards import Step as Layered
from tracekit.comm import load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.errors import RequestError
from tracekit.parallelism.compressions import Compression, parse_compression
from tracekit.parallelism.ddp import InsertCompressedAllreduces
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest, apply_request
from tracekit.parallelism.local_sgd import AverageParameters
from tracekit.prediction import Prediction
from tracekit.request import PredictRequest
from tracekit.testing import TraceBuilder

FAR = "4x8xa100-sxm-80gb@eth25"
GRADIENT_BYTES = 4 * MIB + 64
"""Of a step's two gradients, 1024 x 1024 and 16 of fp32."""


def predict(**layout: Any) -> Prediction:
    return Step().on(FAR, **layout)


def reduce_us(size: float, ranks: int = 32, dtype: str = "fp32") -> float:
    call = {"collective": ["all_reduce"], "bytes": [size], "ranks": [ranks], "dtype": [dtype]}
    return predict_collectives(pl.DataFrame(call), load_cluster(FAR))["time_us"].item()


def list_inserted(found: Prediction, *columns: str) -> list[tuple[Any, ...]]:
    return found.program.kernels.filter(work_from="assumed").select(columns).rows()


def test_compressed_gradients_take_half_the_bytes_and_two_casts_a_bucket() -> None:
    whole, halved = predict(dp=32), predict(dp=32, gradient_compression="bf16")
    rows = list_inserted(halved, "name", "dtype", "bytes")
    elements = [MIB, 16]
    assert [row for row in rows if row[0] == "all-reduce"] == [("all-reduce", "bf16", 2 * n) for n in elements]
    # Read 4 bytes and write 2, divide 2 in place; back: read 2, write 4.
    assert [row[2] for row in rows if row[0] == "compress a bucket"] == [10 * n for n in elements]
    assert [row[2] for row in rows if row[0] == "decompress a bucket"] == [6 * n for n in elements]
    assert halved.inserted_us["collective"] == pytest.approx(sum(reduce_us(2 * n, dtype="bf16") for n in elements))
    assert halved.step.step_time_us < whole.step.step_time_us
    assert find_message(halved.notes, "ddp-compressed").values["sent_bytes"] == GRADIENT_BYTES // 2
    assert str(halved.layout) == "32 ranks = dp 32, bf16 gradients"


@pytest.mark.parametrize(
    ("given", "sent", "compressed", "back"),
    [
        # A byte of each value from each of 32 ranks, which it dequantises and adds.
        ("int8", [32 * MIB, 32 * 16], 9, 32 * 17),
        # 4 x 2 x (1024 + 1024) for the matrix; the vector is whole.
        ("powersgd:2", [16384, 64], 20, 16),
        # A hundredth of the values with their places, 8 bytes each, from each rank.
        ("topk", [32 * 83887, 32 * 2], 32, 4 + 0.16 * 32),
    ],
)
def test_what_a_compression_sends_and_works(given: str, sent: list[int], compressed: int, back: float) -> None:
    found = predict(dp=32, gradient_compression=given)
    how = parse_compression(given)
    assert how is not None
    rows = list_inserted(found, "name", "collective", "bytes")
    elements = [MIB, 16]
    assert [row[2] for row in rows if row[0] == "compress a bucket"] == [compressed * n for n in elements]
    assert [row[2] for row in rows if row[0] == "decompress a bucket"] == [int(back * n) for n in elements]
    kind = "all_gather" if how.gathers else "all_reduce"
    ranks = 32 if how.gathers else 1
    assert [row[2] * ranks for row in rows if row[1] == kind] == sent
    call = {"collective": kind, "ranks": 32, "dtype": how.dtype}
    times = predict_collectives(pl.DataFrame({"bytes": sent, **{key: [one] * 2 for key, one in call.items()}}), FAR)
    assert found.inserted_us["collective"] == pytest.approx(times["time_us"].sum())
    assert str(found.layout) == f"32 ranks = dp 32, {given} gradients"


def test_a_bucket_is_cast_before_its_all_reduce_and_back_before_its_copies() -> None:
    run = InsertCompressedAllreduces(Compression("fp16"), 32)(Step().run.program).program
    copied, reduced, cast, cast_back = [10, 10], [50, 30], [6, 5], [4, 3]
    durations = np.array([100, 100, 100, 100, *copied, *reduced, *copied, *cast, *cast_back], dtype=float)
    line = run.replay_timeline(durations)
    ends_us = (line.activity_end_ns / 1e3).round().tolist()
    # The stream: 1 us between kernels, 2 until what waits on another stream starts.
    first_in = 211 + 1 + 10
    first_cast = first_in + 1 + 6
    second_in = first_cast + 1 + 100 + 1 + 10
    second_cast = second_in + 1 + 5
    first_reduced = first_cast + 2 + 50
    second_reduced = max(second_cast + 2, first_reduced + 1) + 30
    first_whole, second_whole = first_reduced + 2 + 4, second_reduced + 2 + 3
    first_back = max(second_cast + 1, first_whole + 2) + 10
    second_back = max(first_back + 1, second_whole + 2) + 10
    assert ends_us[4:] == [
        *(first_in, second_in, first_reduced, second_reduced, first_back, second_back),
        *(first_cast, second_cast, first_whole, second_whole),
    ]
    assert ends_us[3] == second_back + 1 + 100


def test_an_average_every_ten_steps_adds_a_tenth_of_it_to_each() -> None:
    alone, apart = Step().on(FAR), predict(dp=32, sync_every=10)
    assert list_inserted(apart, "collective", "bytes") == [(None, 4 * GRADIENT_BYTES), ("all_reduce", GRADIENT_BYTES)]
    tenth_us = reduce_us(GRADIENT_BYTES) / 10
    assert apart.inserted_us["collective"] == pytest.approx(tenth_us)
    assert apart.step.exposed_comm_us == pytest.approx(tenth_us, abs=0.01)
    twice = predict(dp=32, sync_every=20)
    assert alone.step.step_time_us < twice.step.step_time_us < apart.step.step_time_us
    assert find_message(apart.notes, "parameters-averaged").values == {
        "parameter_bytes": GRADIENT_BYTES,
        "every": 10,
    }
    assert str(apart.layout) == "32 ranks = dp 32, averaged every 10 steps"


def test_the_average_follows_the_update_on_the_cpu_and_the_gpu() -> None:
    run = AverageParameters(10)(Step().run.program).program
    line = run.replay_timeline(np.array([100, 100, 100, 100, 50, 70], dtype=float))
    ends_us = (line.activity_end_ns / 1e3).round(1).tolist()
    # Of times that a tenth of the steps take: 413 us is the step's end, 2 until another stream starts.
    assert ends_us[4:] == [ends_us[3] + 2 + 5, ends_us[3] + 2 + 5 + 2 + 7]


def test_neighbours_still_reduce_gradients_in_each_step() -> None:
    near = predict(dp=32, sync_every=10, sync_within=8)
    reduced = [row for row in list_inserted(near, "collective", "bytes") if row[0]]
    assert reduced == [("all_reduce", 4 * MIB), ("all_reduce", 64), ("all_reduce", GRADIENT_BYTES)]
    inside_us = sum(reduce_us(size, ranks=8) for size in (4 * MIB, 64))
    assert near.inserted_us["collective"] == pytest.approx(inside_us + reduce_us(GRADIENT_BYTES) / 10)
    assert find_message(near.notes, "parameters-averaged-near").values["within"] == 8
    assert str(near.layout) == "32 ranks = dp 32, averaged every 10 steps (8 reduce each)"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"dp": 32, "sync_within": 8}, "sync-within-each-step"),
        ({"dp": 32, "sync_every": 10, "sync_within": 5}, "sync-within-indivisible"),
        ({"dp": 32, "sync_every": 10, "gradient_compression": "fp16"}, "compression-with-averages"),
        ({"dp": 32, "zero": 1, "gradient_compression": "fp16"}, "compression-of-all-reduces"),
        ({"dp": 32, "fsdp": True, "sync_every": 10}, "averages-of-whole-replicas"),
        ({"dp": 16, "tp": 2, "sync_every": 10}, "averages-of-whole-replicas"),
        ({"sync_every": 10}, "exchange-of-one-rank"),
        ({"gradient_compression": "fp16"}, "exchange-of-one-rank"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(LayoutError, check=has_code(code)):
        predict(**asked)


@pytest.mark.parametrize("given", ["int4", "bf16:2", "powersgd:0", "powersgd:1.5", "topk:0", "topk:2", ""])
def test_an_unknown_compression_is_refused(given: str) -> None:
    with pytest.raises(RequestError, check=has_code("gradient-compression-unknown")):
        PredictRequest(gpu="l4", gradient_compression=given)


def test_what_a_job_lacks_is_refused() -> None:
    inference = TraceBuilder().kernel("gemm", 10, 100, launch=0)
    with pytest.raises(LayoutError, check=has_code("exchange-of-inference")):
        tk.predict(inference.load(), cluster=FAR, dp=32, sync_every=10)
    with pytest.raises(LayoutError, check=has_code("recorded-exchange-fixed")):
        apply_request(Layout(dp=2), LayoutRequest(sync_every=10))


def test_fsdp_casts_gradients_on_their_way_into_the_reduce_scatters() -> None:
    whole, halved = (Layered().on(FAR, dp=32, fsdp=True, gradient_compression=one) for one in (None, "bf16"))
    moved = [("all_gather", "fp32", 4 * MIB)] * 4 + [("reduce_scatter", "bf16", 2 * MIB)] * 2
    # A copy out of a buffer reads and writes 4 bytes a value, one into it reads 4 and writes 2.
    copied = [(None, "fp32", 8 * MIB)] * 4 + [(None, "fp32", 6 * MIB)] * 2
    assert list_inserted(halved, "collective", "dtype", "bytes") == moved + copied
    assert halved.step.step_time_us < whole.step.step_time_us
    with pytest.raises(LayoutError, check=has_code("compression-of-all-reduces")):
        Layered().on(FAR, dp=32, fsdp=True, gradient_compression="topk")
