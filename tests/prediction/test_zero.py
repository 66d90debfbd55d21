"""A sharded optimizer: ZeRO 1 to 3."""

from typing import Any

import pytest

import tracekit as tk
from tests.codes import has_code
from tests.conftest import SAMPLES
from tests.prediction.test_shards import MIB, Step
from tracekit.errors import RequestError
from tracekit.parallelism.layout import LayoutError
from tracekit.prediction import Prediction
from tracekit.request import PredictRequest

ON_EIGHT = "8xa100-sxm-80gb"


def predict(**layout: Any) -> Prediction:
    return tk.predict(Step().builder.load(), cluster=ON_EIGHT, **layout).targets[0]


def find_collectives(found: Prediction) -> list[tuple[str, int]]:
    added = found.program.kernels.filter(family="collective").select("collective", "bytes")
    return list(added.iter_rows())


def test_gradients_are_scattered_and_parameters_gathered_after_the_update() -> None:
    whole, sharded = predict(dp=8), predict(dp=8, zero=1)
    reduced = find_collectives(whole)
    total = sum(size for _, size in reduced)
    assert {name for name, _ in reduced} == {"all_reduce"}
    assert find_collectives(sharded) == [*(("reduce_scatter", size) for _, size in reduced), ("all_gather", total)]
    assert total % MIB == 0
    assert str(sharded.layout) == "8 ranks = dp 8 (ZeRO 1)"


def test_each_rank_updates_its_part() -> None:
    times = [
        found.kernels.filter(found.program.kernels["family"][: found.kernels.height] == "optimizer")["time_us"].sum()
        for found in (predict(dp=8), predict(dp=8, shard_optimizer=True))
    ]
    assert times[1] < times[0] / 2


def test_the_stages_by_name() -> None:
    assert find_collectives(predict(dp=8, zero=3)) == find_collectives(predict(dp=8, fsdp=True))
    assert PredictRequest(gpu="l4", zero=3).layout == PredictRequest(gpu="l4", fsdp=True).layout
    assert PredictRequest(gpu="l4", zero=1).layout == PredictRequest(gpu="l4", shard_optimizer=True).layout


def test_what_is_refused() -> None:
    with pytest.raises(RequestError, check=has_code("zero-with-fsdp")):
        PredictRequest(gpu="l4", zero=2, fsdp=True)
    with pytest.raises(LayoutError, check=has_code("zero-of-one-rank")):
        predict(zero=1)
    with pytest.raises(LayoutError, check=has_code("zero-without-optimizer")):
        tk.predict(tk.load(SAMPLES / "recorded/h100-sxm_llama_decode.json.gz"), cluster=ON_EIGHT, dp=8, zero=1)
