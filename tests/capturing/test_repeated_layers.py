"""Models whose equal layers run once while they are captured."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from tracekit.capturing import repeated_layers
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.repeated_layers import FUSED_NAME, Plan, plan_repetition

WIDTH = 64


class Layer(nn.Module):
    """A residual layer, of another kind at every ``period``-th place."""

    def __init__(self, number: int, period: int) -> None:
        super().__init__()
        self.layer_idx = number
        self.is_wide = number % period == 0
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH * (2 if self.is_wide else 1))

    def forward(self, rows: Tensor) -> Tensor:
        return rows + self.linear(self.norm(rows))[:, :WIDTH]


class PreTrainedModel(nn.Module):
    """A model called as those of transformers are, which may keep what is inside of its layers, or read it."""

    def __init__(self, count: int, period: int = 1, *, keeps: bool = False, reads: bool = False) -> None:
        super().__init__()
        self.begin, self.end = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.layers = nn.ModuleList(Layer(number, period) for number in range(count))
        self.keeps, self.reads = keeps or reads, reads

    def forward(self, rows: Tensor) -> Tensor:
        rows, seen = self.begin(rows), []
        for layer in self.layers:
            before, rows = rows, layer(rows)
            seen.append(before * 2 if self.keeps else 0)
        return self.end(rows + sum(seen) if self.reads else rows)


def build(*given: int, **options: bool) -> tuple[PreTrainedModel, Tensor]:
    with torch.device("meta"):
        return PreTrainedModel(*given, **options), torch.zeros(16, WIDTH)


def capture_whole(model: PreTrainedModel, rows: Tensor, **options: object) -> CapturedProgram:
    with patch.object(repeated_layers, "plan_repetition", lambda model: None):
        return capture(model, rows, **options)  # type: ignore[arg-type]


def list_work(program: CapturedProgram) -> list[tuple[object, ...]]:
    return [(FUSED_NAME.sub(r"\1", one.op), one.dims, one.types, one.is_backward) for one in program.calls]


@pytest.mark.parametrize(
    ("given", "plan"),
    [((4,), None), ((9,), Plan(2, 1, 5, 4)), ((20, 3), Plan(6, 3, 2, 14)), ((8, 3), None)],
)
def test_four_periods_run_and_what_is_left_over(given: tuple[int, ...], plan: Plan | None):
    assert plan_repetition(build(*given)[0]) == plan


def test_models_of_other_classes_run_whole():
    assert plan_repetition(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(9)))) is None


@pytest.mark.parametrize(
    "options",
    [
        {"training": True, "optimizer": "fused-adamw", "compiled": True, "micro_batches": 3},
        {"training": True, "optimizer": "adamw-8bit", "recompute": "full"},
        {"training": True, "optimizer": "adamw"},
        {},
    ],
)
def test_a_repeated_step_is_the_whole_one(options: dict[str, object]):
    model, rows = build(14, 2)
    found, whole = capture(model, rows, **options), capture_whole(model, rows, **options)  # type: ignore[arg-type]
    assert list_work(found) == list_work(whole)
    assert found.facts == whole.facts
    assert [one["name"] for one in found.profile.events] == [one["name"] for one in whole.profile.events]
    assert [one >= 0 for one in found.profile.launched_from] == [one >= 0 for one in whole.profile.launched_from]
    starts = [one["ts"] for one in found.profile.events]
    assert starts == sorted(starts)
    assert found.profile.marks_us == sorted(found.profile.marks_us)
    assert len(model.layers) == 14


def test_only_some_layers_run():
    model, rows = build(14)
    ran: list[int] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda layer, inputs, output: ran.append(layer.layer_idx))  # type: ignore[arg-type]
    capture(model, rows)
    assert ran == [0, 1, 2, 3]


def test_nodes_of_autograd_pair_as_they_did():
    model, rows = build(10)
    events = capture(model, rows, training=True).profile.events
    ours = [(one["name"], one["args"]["Sequence number"]) for one in events if "addmm" in one["name"].lower()]
    forward = [number for name, number in ours if name == "aten::addmm"]
    backward = [number for name, number in ours if name == "AddmmBackward0"]
    assert len(set(forward)) == 12
    assert backward == forward[::-1]


@pytest.mark.parametrize("kind", ["keeps", "reads"])
def test_a_model_that_keeps_or_reads_what_is_inside_of_layers_runs_whole(kind: str):
    model, rows = build(10, **{kind: True})
    found, whole = capture(model, rows, training=True), capture_whole(model, rows, training=True)
    assert list_work(found) == list_work(whole)
    assert found.facts == whole.facts


@pytest.mark.parametrize(
    "options", [{"training": True, "optimizer": "fused-adamw", "micro_batches": 3, "lora": 2}, {"compiled": True}]
)
def test_the_layers_that_ran_tell_other_depths(options: dict[str, object]):
    model, rows = build(14)
    found, other = capture(model, rows, **options), build(9)  # type: ignore[arg-type]
    assert found.repeats is not None
    told, whole = found.repeats.change_depth(found, 9), capture(*other, **options)  # type: ignore[arg-type]
    assert told is not None
    assert list_work(told) == list_work(whole)
    assert told.facts == whole.facts
    assert found.repeats.change_depth(found, 4) is None
