"""The report in other forms says the same."""

import io
import json
from dataclasses import replace

import openpyxl
import polars as pl
import pytest
from rich.console import Console

import tracekit as tk
from tests.conftest import SAMPLES
from tests.render.conftest import NASTY, decide
from tracekit.errors import TracekitError
from tracekit.format import format_dollars, format_duration, format_number, format_shape
from tracekit.messages import Severity, Template
from tracekit.prediction.batch import StepBatch
from tracekit.render import html, markdown, tables, terminal
from tracekit.render import json as as_json
from tracekit.render.charts import build_chart
from tracekit.render.notebook import render_report_card
from tracekit.render.screen import SHADES, TimeBars, as_text
from tracekit.reporting import tables as sections
from tracekit.reporting.findings.context import Finding
from tracekit.reporting.model import Report
from tracekit.reporting.sections.communication import RankTime


@pytest.mark.parametrize("left_out", [0, 1])
def test_a_sheet_says_how_many_rows_it_leaves_out(report, monkeypatch, left_out):
    rows = len(report.kernels) - left_out
    monkeypatch.setattr(tables, "MAX_SHEET_ROWS", rows)
    sheet = openpyxl.load_workbook(io.BytesIO(tables.render_workbook(report)))["kernels"]
    last = sheet.cell(rows + 2, 1).value
    assert sheet.cell(rows + 1, 1).value is not None
    assert last == ("and 1 more: -o kernels.parquet has all" if left_out else None)


def test_a_sheet_per_section(report):
    book = openpyxl.load_workbook(io.BytesIO(tables.render_workbook(report)))
    assert {"summary", "step", "time", "kernels", "idle", "critical path", "sensitivity", "accuracy"} <= set(
        book.sheetnames
    )
    rows = list(book["kernels"].values)
    assert len(rows) == 1 + len(report.kernels)
    first = dict(zip(rows[0], rows[1], strict=True))
    assert first["time_us"] == pytest.approx(report.kernels[0].time_us)
    assert first["h100-sxm.time_us"] == pytest.approx(report.kernels[0].predicted_us[0])
    assert book["kernels"]["F1"].comment.text == "Launches per step."
    steps = list(book["step"].values)
    assert [row[0] for row in steps[1:]] == ["a100-sxm-80gb", "h100-sxm", "mi300x"]


def test_edits_stand_in_every_form_with_the_steps_that_are_predicted():
    trace = tk.load(SAMPLES / "synthetic_transformer_train.json.gz")
    edits = ["scale(family=gemm, 0.5)", "no-sync()"]
    predictions = tk.predict(trace, cluster="8xh100-sxm", dp=8, what_if=edits)
    report = tk.report(predictions)
    (target,) = predictions.targets
    first, last = report.what_if
    assert last.predicted_us == (target.step.step_time_us,)
    assert (
        first.predicted_us[0] > 1.2 * tk.predict(trace, gpu="h100-sxm", what_if=edits[:1]).targets[0].step.step_time_us
    )
    for form in (
        as_text(terminal.render_predicted(report, 5)),
        markdown.render_report(report),
        html.render_page(report),
    ):
        for told in (
            *edits,
            format_duration(first.predicted_us[0]),
            format_duration(last.predicted_us[0]),
            "all together",
        ):
            assert told in form
    book = openpyxl.load_workbook(io.BytesIO(tables.render_workbook(report)))
    heads, one, two = book["what if"].values
    assert dict(zip(heads, two, strict=True))["8xh100-sxm.step_time_us"] == pytest.approx(target.step.step_time_us)
    assert one[0] == edits[0]


def test_sheets_have_number_formats_and_charts(report):
    book = openpyxl.load_workbook(io.BytesIO(tables.render_workbook(report)))
    steps = book["step"]
    columns = {cell.value: cell.column for cell in steps[1]}
    formats = {name: steps.cell(2, column).number_format for name, column in columns.items()}
    assert (formats["step_time_us"], formats["speedup"], formats["idle_us"]) == ("#,##0.0", "0.00", "#,##0.0")
    assert steps.cell(2, columns["step_time_us"]).value == pytest.approx(report.source.step_time_us)
    assert book["kernels"].cell(2, 8).number_format == "0.0"
    charted = {name: len(book[name]._charts) for name in ("step", "time", "kernels")}
    assert charted == {"step": 1, "time": 1, "kernels": 1}
    series = book["time"]._charts[0].series
    assert {one.tx.strRef.f.split("!")[0] for one in series} == {"time"}
    first = [row[0] for row in book["summary"].values]
    assert len([label for label in first if label]) == len({label for label in first if label})


def test_cells_are_no_formulas(nasty):
    book = openpyxl.load_workbook(io.BytesIO(tables.render_workbook(nasty)))
    names = [row[4] for row in book["kernels"].values]
    assert NASTY in names


def test_csv_and_parquet_hold_every_kernel(report):
    parquet = pl.read_parquet(io.BytesIO(tables.encode_parquet(report)))
    assert parquet["time_us"].to_list() == [kernel.time_us for kernel in report.kernels]
    assert parquet["mi300x.method"].to_list() == [kernel.methods[1] for kernel in report.kernels]
    assert pl.read_csv(io.StringIO(tables.encode_csv(report)))["name"].to_list() == parquet["name"].to_list()


def test_markdown_is_one_document(report, nasty):
    text = markdown.render_report(report)
    assert text.startswith("# NVIDIA H100 SXM5 80 GB: ")
    assert f"{report.targets[0].speedup:.2f}×" in text
    rows = [line for line in text.splitlines() if line.startswith("| gemm | `")]
    assert len({line.count(" | ") for line in rows}) == 1
    assert "\\|=cmd()" in markdown.render_report(nasty)


@pytest.fixture(scope="module")
def fourfold(report):
    """Four times the batch in steps that take longer: the second target's is slower in its step, not for a sample."""
    changes = zip(report.targets, (1.0075, 0.75), strict=True)
    return decide(
        replace(report, targets=tuple(replace(one, batch_ratio=4.0, speedup=s, price=2.0) for one, s in changes))
    )


def test_speedups_count_samples_as_the_headline_does(fourfold):
    """4.03 and 3 times as fast for each sample, in all forms; JSON keeps the step's and has both."""
    forms = (
        as_text(terminal.render_predicted(fourfold, 1)),
        markdown.render_report(fourfold),
        render_report_card(fourfold),
    )
    for text in forms:
        assert "with 4 times the batch, per sample" in text
        assert "throughput" in text
        assert all(figure in text for figure in ("4.03", "3.00"))
        assert not any(f"{step}{times}" in text for step in ("1.01", "0.75") for times in "x×")
    assert "A step there works through 4 times the samples of a measured one." in forms[1]
    first, second = json.loads(as_json.dump_prediction(fourfold))["targets"]
    assert (second["speedup"], second["speedup_per_sample"]) == (0.75, 3.0)
    assert first["dollars_per_1000_traced_steps"] == pytest.approx(first["dollars_per_1000_steps"] / 4)
    assert sections.build_frames(fourfold)["step"]["speedup_per_sample"].to_list() == [None, 4.03, 3.0]


def uncounted(report: Report) -> Report:
    """As where the trace doesn't tell its batch."""
    targets = tuple(replace(one, batch=None) for one in report.targets)
    return decide(replace(report, source=replace(report.source, batch=None), targets=targets))


def test_costs_stand_in_every_form_with_what_is_paid_today(report):
    """A dollar an hour is 1 / 3.6 dollars for 1,000 steps of a second."""
    paid = replace(report.source, step_time_us=1e6, mean_us=1e6, price=1.0, dollars_per_1000_steps=1 / 3.6)
    told = uncounted(replace(report, source=paid, targets=tuple(replace(one, price=None) for one in report.targets)))
    for text in (as_text(terminal.render_predicted(told, 1)), markdown.render_report(told)):
        assert "$/1k steps" in text
        assert "dollars for 1,000 steps as traced (--samples N for a million samples)" in " ".join(text.split())
        assert "0.28" in text
        assert "–" in text
    for dollars, shown in ((1 / 3.6, "$0.28"), (1240.0, "$1,240")):
        decided = replace(report.decision, here=replace(report.decision.here, dollars=dollars))
        assert shown in html.render_page(replace(told, decision=decided))
    assert sections.build_frames(told)["step"]["dollars_per_1000_steps"].to_list() == [1 / 3.6, None, None]
    assert "$/1k" not in markdown.render_report(report)


def test_tokens_a_second_and_what_a_million_costs_stand_in_every_form(report):
    """3,072 tokens in steps of 11.0 and 7.13 ms; a GPU of 2 dollars an hour."""
    told = decide(replace(report, targets=tuple(replace(one, price=2.0) for one in report.targets)))
    target = told.targets[0]
    rate = 3072 / target.step.step_time_us * 1e6
    cost = 2.0 * 1e6 / rate / 3600
    assert (target.per_second, target.dollars_per_million) == (pytest.approx(rate), pytest.approx(cost))
    for text in (as_text(terminal.render_predicted(told, 1)), markdown.render_report(told), html.render_page(told)):
        assert "tokens/s" in text
        assert format_number(rate) in text
        assert format_number(3072 / report.source.step_time_us * 1e6) in text
        assert format_dollars(cost) in text
        assert "million tokens" in text or "1,000,000 tokens" in text
    assert 'title="Of 3,072 in a step, as its first embedding tells"' in html.render_page(told)
    passes = replace(told, source=replace(told.source, batch=StepBatch(50, "samples", passes=50)))
    assert "of 50 in a step in 50 passes, as its first convolution tells" in as_text(
        terminal.render_predicted(passes, 1)
    )
    found = json.loads(as_json.dump_prediction(told))
    batch = {"size": 3072, "unit": "tokens", "passes": 1, "given": False, "marked": False, "least": None, "most": None}
    batch |= {"phase": None, "accepted": None}
    assert found["source"]["batch"] == batch
    assert found["targets"][0]["per_second"] == pytest.approx(rate)
    assert found["targets"][0]["dollars_per_million"] == pytest.approx(cost)
    row = sections.build_frames(told)["step"].row(1, named=True)
    assert (row["samples"], row["unit"], row["per_second"]) == (3072, "tokens", pytest.approx(rate))
    assert "tokens/s" not in markdown.render_report(uncounted(told))


def test_whether_it_fits_stands_beside_each_target_where_one_may_not(report):
    yes, other = report.targets
    lacking, open_ = (replace(other, memory=replace(other.memory, fits=fits)) for fits in (False, None))
    told = decide(replace(report, targets=(yes, lacking, open_), bars=(*report.bars, report.bars[-1])))
    head, *rows = as_text(terminal.render_predicted(told, 0)).partition("predicted step")[2].splitlines()[1:11]
    assert "fits" in head
    assert [fits for fits in ("yes", "no", "?") for row in rows if f"  {fits} " in row] == ["yes", "no", "?"]
    assert "| yes |" in markdown.render_report(told)
    assert "| no |" in markdown.render_report(told)
    page = html.render_page(replace(report, targets=(lacking, replace(open_, gpu=yes.gpu))))
    assert "doesn&#39;t fit" in page
    assert "may not fit" in page
    assert "lacks memory" in render_report_card(told)
    assert "?" not in as_text(terminal.render_predicted(report, 0))


def test_points_of_other_batches_lie_where_their_samples_do(report, fourfold):
    plain, larger = (build_chart(one, "speeds") for one in (report, fourfold))
    assert larger.y.title == "ms for the samples of a synthetic step"
    assert "for each sample" in larger.x.title
    for here, there in zip(sorted(plain.series[-1].y), sorted(larger.series[-1].y), strict=True):
        assert there == pytest.approx(here / 4)


def test_roofline_points_lie_where_the_work_says(report):
    chart = build_chart(report, "roofline")
    (gemm,) = [series for series in chart.series if series.name == "gemm"]
    kernel = next(kernel for kernel in report.kernels if kernel.family == "gemm")
    assert gemm.x[0] == pytest.approx(kernel.flops / kernel.bytes)
    assert gemm.y[0] == pytest.approx(kernel.flops / (kernel.time_us * 1e-6) / 1e12)
    roof = chart.series[0]
    assert roof.name == "a100-sxm-80gb (synthetic)"
    # 312 TFLOP/s in bf16 and 2039 GB/s, NVIDIA A100 data sheet.
    assert max(roof.y) == pytest.approx(312, rel=0.001)
    assert roof.y[0] / roof.x[0] == pytest.approx(2.039, rel=0.001)


def test_every_gpu_has_its_roof_however_many_there_are(report):
    roofs = tuple(replace(report.roofs[0], gpu=f"gpu{number}", measured=False) for number in range(8))
    drawn = {series.name for series in build_chart(replace(report, roofs=roofs), "roofline").series}
    assert {roof.gpu for roof in roofs} <= drawn


def test_the_screen_says_what_it_leaves_out(report):
    rank = RankTime(rank=0, busy_us=1.0, wait_us=1.0, last=50.0, held_up_us=1.0, clock_ahead_us=None)
    many = replace(report, ranks=tuple(replace(rank, rank=number) for number in range(64)))
    assert "and 54 that hold up less: -o report.xlsx" in as_text(terminal.render_measured(many, 1))
    few = replace(report, ranks=many.ranks[:10])
    assert "hold up less" not in as_text(terminal.render_measured(few, 1))


def test_bars_add_up_to_the_step(report):
    chart = build_chart(report, "time")
    for i, bar in enumerate(report.bars):
        assert sum(series.y[i] for series in chart.series) == pytest.approx(bar.step_time_us / 1e3)


def test_parts_stand_in_one_order_and_those_that_only_a_target_has_are_told(report):
    measured, *others = report.bars
    added = replace(
        others[0], parts=(*others[0].parts[:-1], ("collective", 0.1 * others[0].step_time_us), ("idle", 1.0))
    )
    told = replace(report, bars=(measured, added, *others[1:]))
    place = {family: at for at, (family, _) in enumerate(measured.parts)}
    for bar in others:
        assert [place[family] for family, _ in bar.parts] == sorted(place[family] for family, _ in bar.parts)
    assert "collective 0 %" in as_text(terminal.render_predicted(told, 0))
    assert "| collective | 0 |" in markdown.render_report(told)
    assert "</i>collective</th>" in html.render_page(told)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_bars_stay_on_their_line_however_long_a_name_is(report, width):
    named = replace(report.bars[1], label="64x8xh100-sxm@ndr400")
    console = Console(width=width)
    with console.capture() as capture:
        console.print(TimeBars((report.bars[0], named)))
    lines = capture.get().splitlines()
    assert lines[0].startswith("synthetic ")
    assert lines[1].startswith("64x8xh100-sxm@ndr400 ")
    assert all(line.rstrip().endswith(" ms") and len(line.rstrip()) <= width for line in lines[:2])
    assert all(line.count("%") == sum(line.count(sign) for sign in f"{SHADES}░·") for line in lines[2:])


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_every_sign_of_a_bar_is_in_the_legend_once(report, encoding):
    parts = [*((f"kind {number}", 6.0) for number in range(12)), ("tiny", 0.9), ("small", 1.0), ("idle", 26.1)]
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(width=200, color_system=None, file=output)
    console.print(TimeBars((replace(report.bars[0], step_time_us=100.0, parts=tuple(parts)),)))
    output.seek(0)
    bar, *legend = output.read().splitlines()
    signs = {sign for sign in bar.removeprefix("synthetic ").removesuffix(" 100 µs") if sign != " "}
    told = [entry.split()[0] for entry in " ".join(legend).removeprefix("synthetic: ").split("   ") if entry.strip()]
    assert len(told) == len(set(told)) == 14
    assert signs <= set(told)
    assert "others 2 %" in " ".join(legend)


def test_without_colours_neighbours_in_a_bar_have_other_shades(report):
    bar, _, legend = as_text(TimeBars(report.bars[:2])).splitlines()[:3]
    assert "█ gemm" in legend
    assert "▓ optimizer" in legend
    assert "█▓" in bar
    console = Console(width=100, force_terminal=True, color_system="truecolor")
    with console.capture() as capture:
        console.print(TimeBars(report.bars[:2]))
    assert "▓" not in capture.get()


def test_an_unknown_figure_is_named(report):
    with pytest.raises(TracekitError, match="roofline"):
        build_chart(report, "pie")


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ("[[8,64],[64],[]]", "8×64, 64"),
        ("[[[2431040]],[],[]]", "2431040"),
        ("[]", ""),
        (None, ""),
        ("[[[2,3],[4]],[5]]", "2×3, 4, 5"),
    ],
)
def test_shapes_as_people_write_them(dims, text):
    assert format_shape(dims) == text


def test_the_screen_shows_the_first_findings_and_counts_the_rest(report):
    number = Template("number", Severity.FINDING, "Finding number {i}.")
    many = tuple(Finding(number(i=i), 1.0) for i in range(9))
    text = as_text(terminal.render_measured(replace(report, findings=many), top=1))
    assert "Finding number 5." in text
    assert "Finding number 6." not in text
    assert "and 3 more: -o report.html" in text


def test_what_limits_many_targets_is_one_sentence_for_each_limit(report):
    """Of eight targets none is left out, and none has a line of its own."""
    (host,) = [one for one in report.findings if one.bottleneck and one.on == "h100-sxm"]
    others = [replace(host, on=f"gpu-{n}", bottleneck=replace(host.bottleneck, share=90.0 + n)) for n in range(7)]
    text = " ".join(as_text(terminal.render_predicted(replace(report, findings=(host, *others)), 0)).split())
    on = "On h100-sxm, gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6"
    assert f"{on} the CPU sets the pace: 90 to 96 % of the critical path (measured: 7 %)." in text
    assert text.count("A faster GPU won't help there") == 1
