"""The page in a real browser: it asks nobody, complains of nothing, and its table sorts and finds."""

from itertools import combinations

import pytest

import tracekit as tk
from tests.conftest import SAMPLES
from tracekit.render.html import render_page


@pytest.fixture(scope="module")
def opened(new_page, report, tmp_path_factory):
    """The page, and what it said and asked for."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(report), encoding="utf-8")
    view = new_page()
    heard = []
    view.on("console", lambda message: heard.append(message.text))
    view.on("pageerror", lambda error: heard.append(str(error)))
    view.on("request", lambda request: heard.append(request.url) if request.url != path.as_uri() else None)
    view.goto(path.as_uri())
    yield view, heard
    view.close()


def families(view):
    return [row.inner_text().strip() for row in view.query_selector_all("tr.l0 td:first-child")]


def test_it_draws_without_a_word_or_a_request(opened):
    view, heard = opened
    view.wait_for_selector("[data-figure=roofline] .main-svg")
    view.wait_for_selector("[data-figure=speeds] .main-svg")
    assert view.query_selector_all("tr.l1")
    assert heard == []


def test_sorting(opened, report):
    view, _ = opened
    times = {}
    for kernel in report.kernels:
        times[kernel.family] = times.get(kernel.family, 0) + kernel.time_us
    assert families(view) == sorted(times, key=lambda family: -times[family])
    view.click("[data-sort=time]")
    assert families(view) == sorted(times, key=lambda family: times[family])
    view.click("[data-sort=name]")
    assert families(view) == sorted(times)
    view.click("[data-sort=time]")


def test_searching_by_keyboard(opened, report):
    view, heard = opened
    view.keyboard.press("/")
    view.keyboard.type("softmax backward")
    wanted = [k for k in report.kernels if "softmax" in k.op + k.name and "backward" in (k.op + k.name).lower()]
    assert view.inner_text("#found").startswith(f"{len(wanted)} kernel")
    assert families(view) == ["softmax"]
    view.keyboard.press("Escape")
    assert len(families(view)) == len({kernel.family for kernel in report.kernels})
    assert heard == []


def test_folding_down_to_the_kernel(opened, report):
    view, _ = opened
    longest = max(report.kernels, key=lambda kernel: kernel.time_us)
    view.fill("#search", longest.name)
    view.click("tr.l1 .fold")
    assert view.inner_text("tr.l2 code") == longest.name
    view.fill("#search", "")


def test_both_themes(opened):
    view, _ = opened
    before = view.evaluate("getComputedStyle(document.querySelector('.report')).backgroundColor")
    view.click("#theme")
    assert view.evaluate("getComputedStyle(document.querySelector('.report')).backgroundColor") != before


def test_a_phone_scrolls_only_tables(opened):
    view, _ = opened
    view.set_viewport_size({"width": 390, "height": 800})
    assert view.evaluate("document.documentElement.scrollWidth") <= 390


def test_three_targets_fit_on_a_laptop(new_page, tmp_path):
    """Within the frame of the web page, which is the narrowest place there."""
    path = tmp_path / "report.html"
    trace = tk.load(SAMPLES / "synthetic_transformer_train.json.gz")
    path.write_text(render_page(tk.report(tk.predict(trace, gpu=["h200-sxm", "b200", "rtx-4090"]))), encoding="utf-8")
    view = new_page(viewport={"width": 1176, "height": 800})
    view.goto(path.as_uri())
    shown, needed = view.evaluate(
        "(at => [at.clientWidth, at.scrollWidth])(document.querySelector('#kernels .scroll'))"
    )
    view.set_viewport_size({"width": 390, "height": 800})
    view.evaluate("document.querySelector('#kernels .scroll').scrollLeft = 500")
    assert needed <= shown
    assert view.query_selector("tr.l0 td").bounding_box()["x"] >= 0
    view.close()


def test_on_paper_nothing_is_cut_off(opened):
    view, _ = opened
    view.set_viewport_size({"width": 720, "height": 1000})
    view.emulate_media(media="print")
    printed = "dispatchEvent(new Event('beforeprint')); "
    printed += "[...document.querySelectorAll('.chart svg, table')].map(e => e.getBoundingClientRect().right)"
    widths = view.evaluate(printed)
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    view.emulate_media(media="screen")
    assert widths
    assert max(widths) <= 720
    view.set_viewport_size({"width": 1280, "height": 1000})
    view.wait_for_timeout(500)
    assert view.query_selector("#roofline .main-svg").bounding_box()["width"] > 900


GPUS = (
    *("h100-sxm", "h100-pcie", "h100-nvl", "h800-sxm", "h200-sxm", "h200-nvl", "gh200-96gb", "gh200-144gb"),
    *("b200", "b300", "a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "mi300x", "mi325x", "l40s", "l4", "t4"),
    *("rtx-3080-laptop-16gb", "rtx-4090"),
)
"""Of like speed, and the slowest far from the fastest."""


@pytest.mark.parametrize("count", [1, 3, 12, 20])
@pytest.mark.parametrize("width", [1280, 390])
def test_labels_of_the_speeds_do_not_overlap(new_page, tmp_path, count, width):
    trace = tk.load(SAMPLES / "synthetic_transformer_inference.json.gz")
    path = tmp_path / "report.html"
    path.write_text(render_page(tk.report(tk.predict(trace, gpu=GPUS[:count]))), encoding="utf-8")
    view = new_page(viewport={"width": width, "height": 800})
    view.goto(path.as_uri())
    view.wait_for_selector("[data-figure=speeds] .main-svg")
    texts = view.query_selector_all("[data-figure=speeds] .annotation-text, [data-figure=speeds] .legendtext")
    boxes = [text.bounding_box() for text in texts if text.text_content().strip()]
    chart = view.query_selector("[data-figure=speeds]").bounding_box()
    view.close()
    assert len(boxes) == count + 4
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    assert all(chart["x"] <= box["x"] and box["x"] + box["width"] <= chart["x"] + chart["width"] for box in boxes)


def overlap(one, other):
    return all(
        min(one[at] + one[size], other[at] + other[size]) - max(one[at], other[at]) > 1
        for at, size in (("x", "width"), ("y", "height"))
    )
