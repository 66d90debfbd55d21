"""What larger batches need to the same loss, by the gradient noise scale: by hand, and in answers."""

from math import sqrt
from pathlib import Path

import pytest

import tracekit as tk
from tests.asking import sweep
from tests.prediction.test_sweep import FAST, training
from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.prediction.critical_batch import compute_work_ratio, estimate_noise_scale, parse_critical_batch
from tracekit.render.sweep import render_markdown
from tracekit.reporting import build_prediction_report
from tracekit.reporting.sweep import build_sweep_report
from tracekit.request import PredictRequest
from tracekit.run import prepare_run

SAMPLES = 8 * 16
"""Of a step of the traced job."""


def test_the_work_grows_by_the_noise_scale():
    """At a noise scale of 1M: 1.5 E_min at 0.5M, 2 at 1M and 5 at 4M."""
    assert compute_work_ratio(1e6, 0.5e6, 1e6) == pytest.approx(2 / 1.5)
    assert compute_work_ratio(4e6, 0.5e6, 1e6) == pytest.approx(5 / 1.5)
    assert compute_work_ratio(0.5e6, 0.5e6, 1e6) == 1


def test_steps_fall_as_the_work_grows():
    """S = S_min (1 + B_noise / B) and E = E_min (1 + B / B_noise) are one law, with E_min = S_min B_noise."""
    critical, least_steps = 1000.0, 200.0
    for batch in (10.0, 1000.0, 50_000.0):
        steps = least_steps * critical * compute_work_ratio(batch, 0, critical) / batch
        assert steps == pytest.approx(least_steps * (1 + critical / batch))


def test_norms_at_two_batch_sizes_tell_the_noise_scale(tmp_path: Path):
    """A gradient of squared norm 4 with noise 1,200 / B: 16 at 100 and 5 at 1,200; 1,200 / 4 = 300."""
    norms = [(100, 4.0), (1200, sqrt(5)), (1200, sqrt(5))]
    assert estimate_noise_scale(norms) == pytest.approx(300)
    (tmp_path / "norms.csv").write_text("batch,grad_norm\n" + "".join(f"{size},{norm}\n" for size, norm in norms))
    assert parse_critical_batch(str(tmp_path / "norms.csv")) == pytest.approx(300)
    assert parse_critical_batch("1.5M") == 1.5e6


@pytest.mark.parametrize("norms", [[], [(8, 1.0)], [(8, 1.0), (8, 2.0)], [(8, 1.0), (64, 1.5)], [(0, 1.0), (8, 0.5)]])
def test_norms_that_tell_nothing(norms: list[tuple[float, float]]):
    assert estimate_noise_scale(norms) is None


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"critical_batch": "many", "samples_to_run": "1M"}, messages.CRITICAL_BATCH_MALFORMED.code),
        ({"critical_batch": "0", "samples_to_run": "1M"}, messages.CRITICAL_BATCH_MALFORMED.code),
        ({"critical_batch": "1M"}, messages.CRITICAL_BATCH_WITHOUT_RUN.code),
        ({"critical_batch": "/nowhere/norms.csv", "samples_to_run": "1M"}, messages.NORMS_UNREADABLE.code),
    ],
)
def test_impossible_noise_scales_are_refused(given: dict[str, str], code: str):
    with pytest.raises(RequestError) as failure:
        PredictRequest(gpu="l4", **given)
    assert failure.value.code == code


def test_a_whole_run_takes_longer_with_a_larger_batch():
    """Twice the ranks at a noise scale of one traced batch: (1 + 2) / (1 + 1) = 1.5 times the samples."""
    asked = {"cluster": FAST, "dp": 16, "samples_to_run": "1M"}
    plain, larger = (
        tk.predict(training().load(), **asked, **more) for more in ({}, {"critical_batch": float(SAMPLES)})
    )
    before, after = (build_prediction_report(one).decision.targets[0] for one in (plain, larger))
    assert after.run_hours.likely == pytest.approx(1.5 * before.run_hours.likely)
    assert after.mean_us == before.mean_us
    assert "1.5 times the samples" in str(after.sentence)
    assert any(note.code == "critical-batch-assumed" for note in larger.targets[0].notes)


def test_a_sweep_puts_the_one_that_reaches_the_loss_first_on_top():
    """8 ranks of 128 samples at a scale of 128 need twice the least work, 64 ranks of 1,024 nine times."""
    run = prepare_run(training().load())
    found = sweep(run, cluster=FAST, critical_batch=SAMPLES, price="2.0")
    work = {entry.prediction.ranks: entry.work for entry in found.entries}
    assert (work[8], work[64]) == (2, 9)
    progress = [entry.per_second / entry.work for entry in found.entries]
    assert progress[0] == max(progress)
    cheapest = min(found.entries, key=lambda entry: entry.dollars_for_progress)
    assert cheapest.prediction.ranks == 8
    shown = render_markdown(build_sweep_report(found))
    assert "to a loss" in shown
    assert "McCandlish" in shown
    assert "to a loss" not in render_markdown(build_sweep_report(sweep(run, cluster=FAST)))
