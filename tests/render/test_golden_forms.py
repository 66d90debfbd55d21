"""Each form of a report, line by line; `pytest --update-golden` accepts a change.

Messages stand as their codes and values, so that their wording may change.
"""

import html as entities
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import RenderableType

import tracekit as tk
from predictors import list_gpus, load_gpu, resolve_gpu
from tests.asking import predict
from tests.conftest import SAMPLES
from tests.doctor.test_doctor import built, diagnose, two_streams
from tests.jobs import gradient_step, job
from tracekit.calibration import Calibration
from tracekit.comm import load_cluster
from tracekit.messages import Message
from tracekit.render import compare, html, machines, markdown, screens, terminal, terminal_tables
from tracekit.render.html.comparison import render_comparison_page
from tracekit.render.screen import as_text
from tracekit.reporting import build_report
from tracekit.reporting.comparison import Comparison, make_measured_side, make_predicted_side
from tracekit.reporting.comparison import compare as compare_sides
from tracekit.reporting.model import Report
from tracekit.run import prepare_run

GOLDEN = Path(__file__).parents[1] / "golden" / "forms"


@pytest.fixture(scope="module", autouse=True)
def _codes() -> Iterator[None]:
    """Messages say their code and values."""

    def say(message: Message, *_: object, **__: object) -> str:
        values = (f" {name}={shorten(value)}" for name, value in message.values.items())
        return f"<{message.code}{''.join(values)}>"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Message, "render_text", say)
        patch.setattr(Message, "render_hint", lambda *_, **__: "")
        yield


def shorten(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"[{', '.join(map(shorten, value))}]" if isinstance(value, tuple) else str(value)


@pytest.fixture(scope="module")
def trained() -> Report:
    run = prepare_run(tk.load(SAMPLES / "synthetic_transformer_train.json.gz"))
    targets = predict(run, ["h100-sxm", "t4"]).targets
    return build_report(run, targets, command="tracekit predict x")


@pytest.fixture(scope="module")
def ranks() -> Report:
    return build_report(prepare_run(job(gradient_step(150, 412), gradient_step(350, 412, clock=30))), ())


@pytest.fixture(scope="module")
def comparison(trained: Report) -> Comparison:
    return compare_sides(make_measured_side(trained, "here"), make_predicted_side(trained, 0, "there"))


def check(name: str, text: str, request: pytest.FixtureRequest) -> None:
    """Assert that a text is the golden one; where it differs, pytest shows the lines."""
    path = GOLDEN / f"{name}.txt"
    text = text.replace(f"{SAMPLES}/", "").replace(tk.__version__, "0")
    lines = [re.sub(r"\b[0-9a-f]{12}\b", "digest", line.rstrip()) for line in text.splitlines()]
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()


def to_text(screen: RenderableType) -> str:
    return as_text(screen)


def strip_markup(page: str) -> str:
    """The words and figures of a page, a line for each element that has some."""
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", "", page, flags=re.DOTALL)
    lines = (
        re.sub(r"\s+", " ", entities.unescape(line)).strip() for line in re.sub(r"<[^>]+>", "\n", body).split("\n")
    )
    return "\n".join(line for line in lines if line)


@pytest.mark.parametrize("which", ["trained", "ranks"])
def test_the_screen(which: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(which)
    check(f"{which}_info", to_text(terminal.render_info(report)), request)
    check(f"{which}_measured", to_text(terminal.render_measured(report, 5)), request)
    if report.targets:
        check(f"{which}_predicted", to_text(terminal.render_predicted(report, 5)), request)
    check(f"{which}_critical_path", to_text(terminal_tables.render_critical_path(report)), request)


@pytest.mark.parametrize("which", ["trained", "ranks"])
def test_markdown(which: str, request: pytest.FixtureRequest) -> None:
    check(f"{which}_markdown", markdown.render_report(request.getfixturevalue(which)), request)


@pytest.mark.parametrize("which", ["trained", "ranks"])
def test_the_page(which: str, request: pytest.FixtureRequest) -> None:
    check(f"{which}_page", strip_markup(html.render_page(request.getfixturevalue(which))), request)


def test_a_comparison(comparison: Comparison, request: pytest.FixtureRequest) -> None:
    check("comparison", to_text(compare.render_comparison(comparison, 4)), request)
    check("comparison_page", strip_markup(render_comparison_page(comparison, 4)), request)


def test_a_diagnosis(request: pytest.FixtureRequest) -> None:
    bad = diagnose(built(shapes=False, steps=4, lengths=[1000, 1000, 1300, 1000]))
    check("diagnosis", to_text(screens.render_diagnosis(bad)), request)
    check("diagnosis_streams", to_text(screens.render_diagnosis(diagnose(two_streams()))), request)


def test_gpus_and_clusters(request: pytest.FixtureRequest) -> None:
    some = [load_gpu(slug) for slug in list_gpus() if slug in ("a100-sxm-80gb", "h100-sxm", "mi300x", "t4")]
    check("gpu_table", to_text(machines.render_gpu_table(some)), request)
    check("gpu_card", to_text(machines.render_gpu_card(resolve_gpu("NVIDIA A100-SXM4-80GB"))), request)
    check(
        "cluster_table", to_text(machines.render_cluster_table([load_cluster("p5"), load_cluster("dgx-a100")])), request
    )
    check("cluster_card", to_text(machines.render_cluster_card(load_cluster("16xp5"))), request)


def test_calibrations(request: pytest.FixtureRequest) -> None:
    kernels = pl.DataFrame({"family": ["gemm", "norm", "gemm"], "measured_us": [1.0, 2.0, 3.0]})
    one = Calibration("h100-sxm", "bench", "2026-11-26", "torch 2.9", kernels)
    errors = pl.DataFrame(
        [("gemm half", 12, 10.25, 5.0, True), ("norm", 3, 7.0, None, True), ("copy", 4, 1.0, 2.0, False)],
        schema=["law", "kernels", "before", "after", "sharpens"],
        orient="row",
    )
    check("calibration_table", to_text(machines.render_calibration_table([one])), request)
    check("calibration_new", to_text(machines.render_new_calibration(one, errors, Path("/x.json"))), request)
    assert to_text(machines.render_calibration_table([])).startswith("No GPU is calibrated.")
