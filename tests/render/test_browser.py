"""The page in a real browser: it asks nobody, complains of nothing, keeps nobody out, and its tables sort and find."""

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

import tracekit as tk
from tests.axe import find_barriers
from tests.conftest import SAMPLES
from tests.render.conftest import repeat_targets
from tracekit.render.html import render_page
from tracekit.render.html.page import MAX_DRAWN_TARGETS
from tracekit.render.html.rows import build_kernel_families

pytestmark = pytest.mark.heavy


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


def list_rows(view, table, column=0):
    """The texts of a column, as far as rows are shown."""
    rows = view.query_selector_all(f"#{table} tbody:not([data-fixed]) tr")
    return [row.query_selector_all("td, th")[column].inner_text().strip() for row in rows if row.is_visible()]


def list_families(view):
    return view.eval_on_selector_all("#kernel-table tbody:not([hidden])", "all => all.map(one => one.dataset.family)")


def test_it_shows_without_a_word_or_a_request(opened):
    view, heard = opened
    names = view.eval_on_selector_all("figure", "all => all.map(one => one.dataset.figure)")
    assert {"answer", "time", "roofline", "speeds", "steps"} <= {*names}
    assert all(svg.bounding_box()["width"] > 600 for svg in view.query_selector_all("figure svg"))
    assert heard == []


def test_it_keeps_nobody_out(opened):
    view, _ = opened
    for theme in ("light", "dark"):
        view.emulate_media(color_scheme=theme)
        assert find_barriers(view) == []
    view.emulate_media(color_scheme="light")


def test_kernels_sort(opened, report):
    view, _ = opened
    times = {}
    for kernel in report.kernels:
        times[kernel.family] = times.get(kernel.family, 0) + kernel.time_us
    assert list_families(view) == sorted(times, key=lambda family: -times[family])
    view.click("#kernel-table th[aria-sort] button")
    assert list_families(view) == sorted(times, key=lambda family: times[family])
    view.click("#kernel-table th:first-child button")
    assert list_families(view) == sorted(times)
    view.click("#kernel-table th:nth-child(3) button")


def test_kernels_are_found_by_keyboard(opened, report):
    view, heard = opened
    view.keyboard.press("/")
    view.keyboard.type("softmax backward")
    wanted = [k for k in report.kernels if "softmax" in k.op + k.name and "backward" in (k.op + k.name).lower()]
    assert view.inner_text("[data-tools=kernel-table] [data-found]").startswith(f"{len(wanted)} row")
    assert list_families(view) == ["softmax"]
    view.keyboard.press("Escape")
    assert len(list_families(view)) == len({kernel.family for kernel in report.kernels})
    view.select_option("[data-tools=kernel-table] [data-filter=family]", "gemm")
    assert list_families(view) == ["gemm"]
    view.select_option("[data-tools=kernel-table] [data-filter=family]", "")
    assert heard == []


def test_columns_are_chosen(opened):
    view, _ = opened
    heading = view.query_selector("#kernel-table th:nth-child(5)")
    assert heading.is_visible()
    view.click("[data-tools=kernel-table] summary")
    view.uncheck("[data-tools=kernel-table] .columns label:nth-child(4) input")
    assert not heading.is_visible()
    view.check("[data-tools=kernel-table] .columns label:nth-child(4) input")
    view.click("[data-tools=kernel-table] summary")


def test_an_address_opens_what_hides_its_place(opened, report):
    view, _ = opened
    row = build_kernel_families(report)[-1].rows[0]
    view.fill("[data-tools=kernel-table] [data-search]", "gemm")
    assert not view.is_visible(f"#{row.id}")
    view.evaluate(f"location.hash = '{row.id}'")
    view.wait_for_selector(f"#{row.id}.marked")
    assert view.is_visible(f"#{row.id}")
    view.hover(f"#{row.id}")
    view.click(f"#{row.id} .anchor")
    view.wait_for_selector(f"#{row.id} .anchor.copied")


def test_findings_and_kernels_show_where_they_are_in_the_timeline(opened, report):
    view, _ = opened
    for button in ("#findings [data-acts] button", "#kernel-table .in-timeline"):
        view.eval_on_selector(button, "button => button.click()")
        lit = {int(path.get_attribute("data-k")) for path in view.query_selector_all("path.lit")}
        assert lit
        assert lit <= {block.kernel for lane in report.timelines.measured.lanes for block in lane.blocks}
        view.click("#timeline-clear")
        assert not view.query_selector_all("path.lit")


def test_figures_are_saved_as_pictures_and_values(opened):
    view, heard = opened
    saved = {}
    for form in ("SVG", "PNG", "CSV"):
        with view.expect_download() as begun:
            view.click(f"[data-figure=roofline] button:text-is('{form}')")
        saved[begun.value.suggested_filename] = Path(begun.value.path()).read_bytes()
    assert ElementTree.fromstring(saved["roofline.svg"]).attrib["width"] == "960"
    assert b"var(" not in saved["roofline.svg"]
    assert saved["roofline.png"].startswith(b"\x89PNG")
    assert saved["roofline.csv"].decode().splitlines()[0] == "series,FLOP per byte,TFLOP/s,detail"
    assert heard == []


def test_both_themes(opened):
    view, _ = opened
    before = view.evaluate("getComputedStyle(document.querySelector('.report')).backgroundColor")
    view.click("#theme")
    assert view.evaluate("getComputedStyle(document.querySelector('.report')).backgroundColor") != before


def test_a_phone_scrolls_only_tables(opened):
    view, _ = opened
    view.set_viewport_size({"width": 390, "height": 800})
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    view.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert view.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_menu_is_at_hand_on_a_phone(opened):
    view, _ = opened
    view.evaluate("scrollTo(0, 5000)")
    assert view.is_visible("nav a[href='#kernels']")
    assert view.evaluate("document.querySelector('nav').getBoundingClientRect().top") < 100
    view.set_viewport_size({"width": 1280, "height": 800})


def test_on_paper_nothing_is_cut_off_or_shut(opened, report):
    view, _ = opened
    view.set_viewport_size({"width": 720, "height": 1000})
    view.emulate_media(media="print")
    edges = "[...document.querySelectorAll('figure svg, table')].map(e => e.getBoundingClientRect().right)"
    widths = [edge for edge in view.evaluate(edges) if edge]
    assert max(widths) <= 720
    assert len(view.query_selector_all("#kernel-table tr[id]:visible")) == len(report.kernels)
    assert all(one.is_visible() for one in view.query_selector_all("details table"))
    view.emulate_media(media="screen")
    view.set_viewport_size({"width": 1280, "height": 800})


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """The page of twenty targets, some with a price."""
    path = tmp_path_factory.mktemp("many") / "report.html"
    trace = tk.load(SAMPLES / "synthetic_transformer_inference.json.gz")
    report = tk.report(tk.predict(trace, gpu=GPUS, price=dict.fromkeys(("a100-sxm-80gb", *GPUS[:8]), 2.0)))
    path.write_text(render_page(report), encoding="utf-8")
    return path, report


def test_twenty_targets_are_small_and_sort_and_filter(many, new_page):
    path, report = many
    assert path.stat().st_size < 500_000
    view = new_page(viewport={"width": 1280, "height": 800})
    view.goto(path.as_uri())
    names = {target.label: target.name for target in report.decision.targets}
    assert [row.split("\n")[0].strip() for row in list_rows(view, "target-table", 1)] == [*names.values()]
    view.click("#target-table th:nth-child(4) button")  # the step
    steps_us = {names[one.label]: one.step.step_time_us for one in report.targets}
    shown = [row.split("\n")[0].strip() for row in list_rows(view, "target-table", 1)]
    assert [steps_us[name] for name in shown] == pytest.approx(sorted(steps_us.values()), rel=1e-3)
    view.fill("[data-tools=target-table] [data-search]", "amd")
    assert len(list_rows(view, "target-table", 1)) == sum("AMD" in name for name in names.values())
    view.close()


def test_many_targets_are_folded_with_and_without_scripts(report, new_page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_page(repeat_targets(report, MAX_DRAWN_TARGETS + 4)), encoding="utf-8")
    for scripts in (True, False):
        view = new_page(java_script_enabled=scripts, viewport={"width": 1280, "height": 800})
        view.goto(path.as_uri())
        assert len(list_rows(view, "target-table")) == MAX_DRAWN_TARGETS
        view.click("text=Show all 24")
        assert len(list_rows(view, "target-table")) == MAX_DRAWN_TARGETS + 4
        view.close()
    view = new_page(viewport={"width": 1280, "height": 800})
    view.goto(path.as_uri())
    last = f"{report.targets[-1].label}-{MAX_DRAWN_TARGETS + 3}"
    view.fill("[data-tools=target-table] [data-search]", last)
    assert len(list_rows(view, "target-table")) == 1
    view.goto("about:blank")
    view.goto(f"{path.as_uri()}#target-{last}")
    assert view.is_visible(f"#target-{last}")
    view.close()


def test_a_phone_shows_money_without_scrolling(many, new_page):
    path, report = many
    for scripts in (True, False):
        view = new_page(java_script_enabled=scripts, viewport={"width": 390, "height": 844})
        view.goto(path.as_uri())
        best = report.decision.targets[0].label
        for column in ("dollars", "pays", "price", "step"):
            box = view.query_selector(f"#target-{best} .{column}").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        view.close()


def test_prices_recompute_costs_as_a_new_prediction_would(many, new_page):
    path, report = many
    view = new_page(viewport={"width": 1280, "height": 800})
    view.goto(path.as_uri())
    trace = tk.load(SAMPLES / "synthetic_transformer_inference.json.gz")
    again = tk.report(tk.predict(trace, gpu=GPUS, price=dict.fromkeys(("a100-sxm-80gb", *GPUS), 3.25)))
    view.fill("#target-here .price input[type=number]", "3.25")
    for target in report.decision.targets:
        view.fill(f"#target-{target.label} .price input[type=number]", "3.25")
    for target in again.decision.targets:
        for column, figure in (("dollars", target.dollars), ("pays", target.break_even)):
            shown = float(view.get_attribute(f"#target-{target.label} .{column}", "data-v"))
            assert shown == pytest.approx(figure.likely, rel=1e-4)
    best = again.decision.targets[0]
    answer = next(said.render() for said in best.sentence.values["answers"] if said.code.startswith("costs-"))
    assert view.inner_text("#detail") == f"At the prices in the table, {best.name}: {answer}"
    view.close()


def test_the_timeline_shows_targets_and_leads_to_kernels(many, new_page):
    path, report = many
    view = new_page(viewport={"width": 1280, "height": 800})
    view.goto(path.as_uri())
    assert [run.get_attribute("data-run") for run in view.query_selector_all("[data-run]:visible")] == ["0", "1"]
    view.select_option("#timeline-target", "3")
    assert [run.get_attribute("data-run") for run in view.query_selector_all("[data-run]:visible")] == ["0", "3"]
    block = view.query_selector("[data-run='0'] path[data-k]")
    block.dispatch_event("click")
    view.wait_for_selector(f"tr.marked[data-k='{block.get_attribute('data-k')}']")
    with view.expect_download() as begun:
        view.click("[data-figure=timeline] button:text-is('CSV')")
    rows = Path(begun.value.path()).read_text().splitlines()
    drawn = (report.timelines.measured, report.timelines.predicted[2])
    assert len(rows) == 1 + sum(len(lane.blocks) for one in drawn for lane in one.lanes)
    view.close()


def test_without_scripts_all_is_there(many, new_page):
    path, report = many
    view = new_page(java_script_enabled=False, viewport={"width": 1280, "height": 800}, color_scheme="dark")
    view.goto(path.as_uri())
    assert len(view.query_selector_all("#target-table tbody:not([data-fixed]) tr:visible")) == len(report.targets)
    assert len(view.query_selector_all("#kernel-table tr[id]:visible")) == len(report.kernels)
    assert len(view.query_selector_all("figure svg:visible")) >= 5
    assert not view.query_selector_all("button:visible, input:visible, select:visible, form:visible")
    view.close()


GPUS = (
    *("h100-sxm", "h100-pcie", "h100-nvl", "h800-sxm", "h200-sxm", "h200-nvl", "gh200-96gb", "gh200-144gb"),
    *("b200", "b300", "a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "mi300x", "mi325x", "l40s", "l4", "t4"),
    *("rtx-3080-laptop-16gb", "rtx-4090"),
)
"""Of like speed, and the slowest far from the fastest."""


@pytest.mark.parametrize("width", [1280, 390])
def test_labels_of_the_speeds_do_not_overlap(many, new_page, width):
    path, _ = many
    view = new_page(viewport={"width": width, "height": 800})
    view.goto(path.as_uri())
    texts = view.query_selector_all("[data-figure=speeds] text")
    boxes = [text.bounding_box() for text in texts]
    chart = view.query_selector("[data-figure=speeds] svg").bounding_box()
    shown = {text.text_content() for text in texts}
    view.close()
    assert {*GPUS} <= shown
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    assert all(chart["x"] <= box["x"] and box["x"] + box["width"] <= chart["x"] + chart["width"] for box in boxes)


def overlap(one, other):
    return all(
        min(one[at] + one[size], other[at] + other[size]) - max(one[at], other[at]) > 1
        for at, size in (("x", "width"), ("y", "height"))
    )
