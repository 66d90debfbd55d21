"""Gradient accumulation: passes of a captured step between two updates."""

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.answers.compositions import SAMPLE, name_outcome
from tests.codes import has_code
from tracekit.cli.app import app
from tracekit.errors import CaptureError, RequestError
from tracekit.parallelism.layout import LayoutError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tracekit as tk  # noqa: E402
from tracekit.capturing import micro_batches  # noqa: E402
from tracekit.capturing.options import CaptureOptions  # noqa: E402
from tracekit.capturing.program import CapturedProgram, capture  # noqa: E402

LAYERS, WIDTH, ROWS = 4, 2048, 1024
PARAMETERS = LAYERS * WIDTH * WIDTH
SINGLE = 4
"""Bytes of a number."""
ON_EIGHT = "8xh100-sxm"


def accumulate(passes: int, *, compiled: bool = False, optimizer: str | None = "fused-adamw") -> CapturedProgram:
    """Capture linear layers, each a module of its own."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
        rows = torch.empty(ROWS, WIDTH)
    return capture(model, rows, training=True, optimizer=optimizer, compiled=compiled, micro_batches=passes)


def count_ops(program: CapturedProgram) -> Counter[str]:
    return Counter(call.op for call in program.calls)


def test_each_pass_has_its_products_and_the_step_one_update() -> None:
    ops = count_ops(accumulate(5))
    # A product forward and two backward for each layer, but the first one's input needs no gradient.
    assert ops["aten::mm"] == 5 * (3 * LAYERS - 1)
    # All passes but the first add to each gradient.
    assert ops["aten::add_"] == 4 * LAYERS
    assert ops["aten::_fused_adamw_"] == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_repeated_passes_are_those_that_would_have_run(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    repeated = accumulate(4, compiled=compiled)
    monkeypatch.setattr(micro_batches, "CAPTURED_PASSES", 4)
    ran = accumulate(4, compiled=compiled)
    assert [(call.op.rpartition("_")[0], call.dims) for call in repeated.calls] == [
        (call.op.rpartition("_")[0], call.dims) for call in ran.calls
    ]
    assert [event["name"] for event in repeated.profile.events] == [event["name"] for event in ran.profile.events]
    assert repeated.profile.launched_from == ran.profile.launched_from
    assert repeated.facts == ran.facts
    assert _count_pairs(repeated) == _count_pairs(ran)


def test_a_step_without_its_repetitions_is_a_shorter_one() -> None:
    long, short = accumulate(5), accumulate(2)
    kept, places = micro_batches.keep_unlike_passes(long)
    assert [(call.op, call.dims) for call in kept.calls] == [(call.op, call.dims) for call in short.calls]
    assert kept.profile.launched_from == short.profile.launched_from
    assert [(call.op, call.dims) for call in long.calls] == [
        (kept.calls[one].op, kept.calls[one].dims) for one in places
    ]
    assert micro_batches.keep_unlike_passes(short)[0] is short


def _count_pairs(program: CapturedProgram) -> Counter[int]:
    """Count how many numbers of autograd's nodes are those of so many ops."""
    numbers = (event["args"].get(micro_batches.SEQUENCE, -1) for event in program.profile.events)
    return Counter(Counter(one for one in numbers if 0 <= one < micro_batches.NO_SEQUENCE).values())


def test_memory_has_the_gradients_of_before_beside_each_further_pass() -> None:
    one, two, many = (accumulate(passes).facts for passes in (1, 2, 7))
    assert many.peaks == two.peaks
    assert one.held_bytes == two.held_bytes == many.held_bytes
    # All gradients are there when the last layer's activations still are, and its new gradient.
    assert max(gradients for gradients, *_ in two.peaks) == PARAMETERS * SINGLE
    assert 0 < two.peak_bytes - one.peak_bytes <= PARAMETERS * SINGLE


def test_gradients_are_reduced_once_by_ddp_and_each_time_by_fsdp() -> None:
    trace = tk.capture(
        nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="meta") for _ in range(LAYERS))),
        torch.empty(ROWS, WIDTH, device="meta"),
        training=True,
        optimizer="fused-adamw",
        micro_batches=3,
    )

    def count(**layout: int) -> dict[str, int]:
        kernels = tk.predict(trace, cluster=ON_EIGHT, **layout).targets[0].program.kernels
        return dict(kernels.filter(family="collective")["collective"].value_counts().rows())

    # 16 MiB a layer: the first is a bucket, then two make one.
    assert count(dp=8) == {"all_reduce": 3}
    # With one gather ahead and one back, and a reduce-scatter, in each pass.
    assert count(dp=8, fsdp=True) == {"all_gather": 3 * 2 * LAYERS, "reduce_scatter": 3 * LAYERS}


def test_a_step_processes_all_its_micro_batches(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\nfrom torch import nn\ndef make(batch=8):\n"
        f"    return nn.Linear({WIDTH}, {WIDTH}), torch.empty(batch, {WIDTH})\n"
    )
    for asked, size in (("--batch 8", 8), ("--micro-batches 4 --batch 16", 64)):
        words = ["predict", f"{file}:make", "--train", "--gpu", "h100-sxm", *asked.split(), "--json", "-q"]
        batch = json.loads(CliRunner().invoke(app, words).stdout)["targets"][0]["batch"]
        assert (batch["size"], batch["unit"]) == (size, "samples")


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, check=has_code("micro-batches-without-training")):
        capture(nn.Linear(4, 4), torch.empty(2, 4), micro_batches=2)
    monkeypatch.setattr(micro_batches, "MAX_KERNELS", 20)
    with pytest.raises(CaptureError, check=has_code("micro-batches-many")):
        accumulate(9)
    with pytest.raises(LayoutError, check=has_code("schedule-without-stages")):
        tk.predict(tk.load(SAMPLE), gpu="b200", micro_batches=4)
    done = CliRunner().invoke(app, ["report", str(SAMPLE), "--micro-batches", "4", "-q"])
    assert name_outcome(done) == "options-of-programs"


def test_a_sharded_optimizer_takes_its_part_of_the_memory() -> None:
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="meta") for _ in range(LAYERS)))
    trace = tk.capture(layers, torch.empty(ROWS, WIDTH, device="meta"), training=True, optimizer="fused-adamw")
    alone = tk.predict(trace, gpu="h100-sxm").targets[0].memory.max_bytes
    one, two = (tk.predict(trace, cluster=ON_EIGHT, dp=8, zero=zero).targets[0].memory.max_bytes for zero in (1, 2))
    states, gradients = 2 * PARAMETERS * SINGLE, PARAMETERS * SINGLE
    assert alone - one == states * 7 / 8
    # Where activations weigh most, there are no gradients yet.
    assert one - gradients * 7 / 8 <= two <= one


def test_no_optimizer_where_the_stack_has_one() -> None:
    options = CaptureOptions(train=True, stack="hf", optimizer="none").follow_stack()
    assert not any("adamw" in op for op in count_ops(accumulate(1, optimizer=options.optimizer)))
    assert CaptureOptions(train=True, stack="hf").follow_stack().optimizer == "fused-adamw"
