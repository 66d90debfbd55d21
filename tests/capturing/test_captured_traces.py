"""Captured programs as traces: their ops, phases and modules, and all that is predicted from traces."""

import json
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import RequestError

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from tests.capturing.blocks import WIDTH, Block, build  # noqa: E402
from tracekit.models.captured import FACTS_KEY, CaptureFacts  # noqa: E402
from tracekit.run import prepare_run  # noqa: E402
from tracekit.trace import Trace  # noqa: E402

LAYERS, WORDS, BATCH, LENGTH = 6, 512, 32, 512


class Decoder(nn.Module):
    """A language model of equal layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.head(x)
        return found


@pytest.fixture(scope="module")
def trained() -> Trace:
    """Capture a training step."""
    with torch.device("meta"):
        model, tokens = Decoder().bfloat16(), torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    return tk.capture(model, tokens, training=True, optimizer="adamw")


def test_ops_enclose_what_they_call_and_the_backward_pass_has_its_nodes(trained: Trace) -> None:
    kernels = prepare_run(trained).kernels
    phases = dict(kernels.group_by("phase").len().rows())
    assert set(phases) == {"forward", "backward", "optimizer"}
    products = kernels.filter(family="gemm")
    assert products.filter(phase="backward").height == 2 * products.filter(phase="forward").height
    names = trained.ranks[0].ops["name"]
    assert (names == "torch::autograd::AccumulateGrad").sum() == len(list(Decoder().parameters()))
    assert not names.str.contains("tracekit|PythonDispatchMode").any()
    assert {"aten::linear", "aten::addmm", "aten::layer_norm"} <= set(names)


def test_modules_are_those_of_the_program(trained: Trace) -> None:
    modules = {one.path for one in tk.report(trained).modules}
    assert any("Block" in name for name in modules)


def test_a_captured_trace_says_that_nothing_was_measured(trained: Trace) -> None:
    report = tk.report(trained)
    assert report.source.label == "captured"
    assert "nothing-measured" in {warning.code for warning in report.warnings}
    assert report.source.host_speed is None


def test_the_same_gpu_gives_the_times_of_the_trace(trained: Trace) -> None:
    predicted = tk.predict(trained, gpu="h100-sxm")
    step_us = predicted.run.measured_step.step_time_us
    (found,) = predicted.targets
    assert found.step.step_time_us == pytest.approx(step_us, rel=1e-3)
    assert found.low_us < 0.95 * step_us
    assert found.high_us > 1.05 * step_us
    assert set(found.kernels["method"]) <= {"law", "kept"}


def test_a_step_on_a_gpu_is_the_same_whichever_gpu_the_trace_holds() -> None:
    found = [tk.predict(tk.capture(*build(), gpu=gpu), gpu="l40s").targets[0] for gpu in ("l40s", "mi300x", "t4")]
    for other in found[1:]:
        assert other.step.step_time_us == pytest.approx(found[0].step.step_time_us, rel=0.01)
        assert other.low_us == pytest.approx(found[0].low_us, rel=0.01)
        assert other.high_us == pytest.approx(found[0].high_us, rel=0.01)


def test_a_faster_host_shortens_what_it_paces() -> None:
    trace = tk.capture(*build())
    times = [tk.predict(trace, gpu="h100-sxm", host=speed).targets[0].step.step_time_us for speed in (0.5, 1.0, 2.0)]
    assert times[0] == pytest.approx(2 * times[1], rel=0.05)
    assert times[1] == pytest.approx(2 * times[2], rel=0.05)


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({"dp": 4}, 4),
        ({"dp": 4, "fsdp": True}, 4),
        ({"tp": 2}, 2),
        ({"pp": 2, "micro_batches": 4}, 2),
        ({"dp": 2, "tp": 2, "pp": 2, "micro_batches": 4}, 8),
    ],
)
def test_every_layout_can_be_asked_for(trained: Trace, options: dict[str, object], ranks: int) -> None:
    (found,) = tk.predict(trained, cluster="8xh100-sxm", **options).targets
    assert found.ranks == ranks
    assert 0 < found.low_us < found.step.step_time_us < found.high_us
    assert found.memory.fits


def test_twice_the_batch_is_what_a_capture_of_it_is() -> None:
    def capture(batch: int) -> Trace:
        with torch.device("meta"):
            return tk.capture(Decoder().bfloat16(), torch.zeros(batch, LENGTH, dtype=torch.int64))

    (scaled,) = tk.predict(capture(BATCH), gpu="h100-sxm", batch=2).targets
    (whole,) = tk.predict(capture(2 * BATCH), gpu="h100-sxm").targets
    assert scaled.step.step_time_us == pytest.approx(whole.step.step_time_us, rel=0.02)
    facts = capture(2 * BATCH).ranks[0].capture_facts
    assert facts
    assert scaled.memory.min_bytes
    assert scaled.memory.min_bytes == pytest.approx(facts.peak_bytes, rel=0.05)


def test_a_file_holds_the_same_trace(trained: Trace, tmp_path: Path) -> None:
    from tracekit.capturing.program import capture
    from tracekit.capturing.timed_trace import build_timed_trace

    path = build_timed_trace(capture(*build()), "l4").save(tmp_path / "step.json.gz")
    loaded, made = tk.load(path), tk.capture(*build(), gpu="l4")
    assert loaded.ranks[0].capture_facts == made.ranks[0].capture_facts
    assert loaded.ranks[0].activities["dur_ns"].to_list() == made.ranks[0].activities["dur_ns"].to_list()
    assert prepare_run(loaded).gpu == prepare_run(made).gpu


@pytest.mark.parametrize(
    "noted", [{}, {"gpu": 3}, {"gpu": "l4", "parameters": -1}, [], "l4", {"gpu": "l4", "trains": "yes"}]
)
def test_facts_that_are_not_whole_make_no_capture(noted: object) -> None:
    assert CaptureFacts.from_metadata({FACTS_KEY: noted}) is None
    assert CaptureFacts.from_metadata({}) is None


def test_one_cuda_graph_leaves_the_cpu_out() -> None:
    eager, graphed = (tk.capture(*build(), cuda_graph=graph) for graph in (False, True))
    (slow,), (fast,) = (tk.predict(trace, gpu="b200").targets for trace in (eager, graphed))
    assert fast.step.step_time_us < slow.step.step_time_us / 3
    assert fast.high_us < 2 * fast.step.step_time_us


def test_captured_kernels_keep_their_order_and_do_not_overlap(trained: Trace) -> None:
    activities = trained.ranks[0].activities
    ends = activities.select(pl.col("ts_ns") + pl.col("dur_ns")).to_series()
    assert (activities["ts_ns"][1:] >= ends[:-1]).all()
    assert json.dumps(trained.ranks[0].metadata[FACTS_KEY])


def test_long_lists_of_parameters_have_their_sizes(trained: Trace) -> None:
    """The profiler leaves them out, and how many there are."""
    updates = prepare_run(trained).kernels.filter(pl.col("op").str.starts_with("aten::_foreach_lerp"))
    parameters = sum(one.numel() for one in Decoder().parameters())
    assert updates["bytes"].to_list() == [3 * 2 * parameters]
    assert updates["dtype"].to_list() == ["bf16"]
    unknown = prepare_run(trained).kernels.filter(pl.col("work_from").is_null())
    assert set(unknown["op"]) <= {"aten::_foreach_add_"}  # the numbers of steps


def test_the_headline_predicts_instead_of_telling(trained: Trace) -> None:
    from tracekit.format import format_interval
    from tracekit.render.sentences import build_headline
    from tracekit.reporting import build_prediction_report

    for gpu in ("h100-sxm", "l40s"):
        report = build_prediction_report(tk.predict(trained, gpu=gpu))
        target = report.targets[0]
        assert format_interval(target.low_us, target.high_us) in build_headline(report).figure


def test_the_doctor_finds_no_recording(trained: Trace) -> None:
    from tracekit.doctor import examine

    found = examine(trained, prepare_run(trained))
    assert [check.name for check in found.checks] == ["recording", "known_ops"]
    assert found.checks[0].status == "fail"
    assert found.grade == "C"


def test_a_sweep_takes_the_largest_batch_that_fits_each_layout(trained: Trace) -> None:
    found = tk.sweep(trained, cluster=["4xl4", "4xh100-sxm"], batch="max")
    for entry in found.entries:
        layout = entry.prediction.layout
        assert layout
        assert entry.prediction.memory.fits
        assert layout.batch > 1
        more = tk.predict(trained, cluster=entry.prediction.label, dp=layout.dp, batch=layout.batch + 1)
        assert more.targets[0].memory.fits is not True
    small, large = found.table.group_by("cluster").agg(pl.col("batch").max())["batch"].sort()
    assert small < large / 2


def test_a_sweep_takes_a_multiple_of_the_batch(trained: Trace) -> None:
    swept = {one.prediction.ranks: one.prediction for one in tk.sweep(trained, cluster="2xh100-sxm", batch=2).entries}
    (alone,) = tk.predict(trained, gpu="h100-sxm", batch=2).targets
    assert swept[1].step.step_time_us == pytest.approx(alone.step.step_time_us, rel=0.01)
    assert swept[1].layout
    assert swept[1].layout.batch == 2


@pytest.mark.parametrize("batch", ["maximum", "0", "-1", "nan", "1e9", ""])
def test_a_batch_that_is_none_is_refused(trained: Trace, batch: str) -> None:
    with pytest.raises(RequestError, check=has_code("batch-factor-malformed")):
        tk.sweep(trained, gpu="l4", batch=batch)
