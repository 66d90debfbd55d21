"""The page as a file: whole, small, and shut to the network."""

import base64
import hashlib
import html
import io
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import openpyxl
import pytest

from tests.render.conftest import NASTY, decide, repeat_targets
from tracekit.format import format_duration
from tracekit.messages import Severity, Template
from tracekit.messages.findings import CPU_IS_BOTTLENECK, LARGER_BATCH
from tracekit.render import markdown, tables
from tracekit.render.html import page, render_page
from tracekit.render.html.rows import MAX_ROWS, build_kernel_families
from tracekit.render.html.timeline import draw_timelines
from tracekit.render.sentences import build_headline, group_findings
from tracekit.reporting.findings.context import Bottleneck, Finding
from tracekit.reporting.sections.targets import EditSaving

MAX_PAGE_BYTES = 500_000


def read_kernels(text: str) -> list[str]:
    """Return the texts of the kernel table's rows."""
    return [html.unescape(re.sub("<[^>]*>", " ", row)) for row in re.findall(r'<tr id="kernel-.*?</tr>', text, re.S)]


def test_it_answers_first(report):
    text = render_page(report)
    answer = build_headline(report)
    assert text.index(answer.figure) < text.index('id="kernels"')
    assert answer.before == "NVIDIA H100 SXM5 80 GB:"
    for section in ("time", "findings", "kernels", "roofline", "speeds", "steps", "idle", "accuracy", "provenance"):
        assert f'id="{section}"' in text


def test_the_headline_says_what_limits_the_best_target(report):
    best = max(report.targets, key=lambda target: target.speedup)
    limit = CPU_IS_BOTTLENECK(targets=["it"], shares_pct=[80.0], measured_pct=60.0, remedies=[LARGER_BATCH()])
    finding = Finding(limit, None, (), best.label, Bottleneck("host", share=80.0, share_here=60.0))
    assert build_headline(replace(report, findings=(finding,))).detail.endswith(f". {limit.render_text()}")
    busy = 100 * best.step.kernel_time_us / best.step.step_time_us
    assert build_headline(replace(report, findings=())).detail.endswith(
        f" The GPU would be busy for {busy:.0f} % of that step."
    )


def test_what_is_advised_alike_of_several_targets_stands_once(report):
    limit = Template("host-limit", Severity.FINDING, "On {gpu} it is the host.", "Fewer launches.")
    links = Template("links-limit", Severity.FINDING, "On c it is the links.", "Faster links.")
    slow = Finding(Template("slow", Severity.FINDING, "It is slow.", "Hurry.")(), 5.0)
    limits = [Finding(limit(gpu=gpu), None, (), gpu) for gpu in "ab"]
    other = Finding(links(), None, (), "c")
    assert group_findings([limits[0], slow, other, limits[1]]) == [limits, [slow], [other]]
    text = render_page(replace(report, findings=(slow, *limits, other)))
    assert text.count("Fewer launches.") == 1
    assert "on 2 targets" in text
    written = markdown.render_report(replace(report, findings=(slow, *limits, other)))
    assert "- **On a it is the host. On b it is the host.** Fewer launches.\n" in written


def test_notes_say_which_targets_they_are_of(report):
    one, other = report.targets
    every = Template("of-all", Severity.NOTE, "all")()
    fits = Template("of-one", Severity.NOTE, "fits", "Name it with {--source-gpu}.")()
    told = replace(report, targets=(replace(one, notes=(every, fits)), replace(other, notes=(every,))))
    text = render_page(told)
    assert "<li>all</li>" in text
    assert f"<li>{one.label}: fits Name it with --source-gpu.</li>" in text
    assert "fits Name it with “source-gpu”." in render_page(told, lambda option: f"“{option}”")
    assert f"\n- all\n- {one.label}: fits Name" in markdown.render_report(told)
    summary = openpyxl.load_workbook(io.BytesIO(tables.render_workbook(told)))["summary"].values
    rows = [(what, said) for what, said in summary]
    first = [what for what, _ in rows].index("note")
    assert rows[first : first + 2] == [("note", "all"), ("", f"{one.label}: {fits}")]


def test_the_headline_says_whose_step_it_is(report):
    """Or eight GPUs against sixty-four would read as one against sixty-four."""
    eight = decide(replace(report, targets=tuple(replace(one, ranks=8) for one in report.targets)))
    assert build_headline(eight).before == "8 × NVIDIA H100 SXM5 80 GB:"
    measured = replace(report, targets=(), decision=None, source=replace(report.source, ranks=8))
    assert build_headline(measured).before == "A step on 8 × NVIDIA A100 SXM4 80 GB takes"
    edit = EditSaving("no-sync()", "", 1, 1.0, 2.0, ())
    assert "with the what-if edits" in build_headline(decide(replace(report, what_if=(edit,)))).before


def test_what_lacks_the_memory_is_answered_last(report):
    first, other = report.targets
    lacking = replace(first, memory=replace(first.memory, fits=False))
    assert build_headline(decide(replace(report, targets=(lacking, other)))).before == "AMD Instinct MI300X:"
    alone = build_headline(decide(replace(report, targets=(lacking,))))
    assert "The job doesn't fit into its memory." in alone.detail


def test_a_trace_without_marks_says_what_its_step_is(report):
    text = render_page(replace(report, source=replace(report.source, steps=1, steps_marked=False)))
    assert "synthetic, no steps marked: all of it counts as one" in text
    assert "synthetic, median of 2 steps" in render_page(report)


def test_targets_with_one_rank_share_it_and_the_first_are_drawn(report):
    text = render_page(repeat_targets(report, 24))
    assert len(re.findall(r'<tr id="target-', text)) == 24
    assert "Show all 24" in text
    assert text.count("irst 20 of 24 targets.") == 3  # of the answer, the families and the kernels
    assert len(re.findall(r'<th class="n" scope="col" colspan="2">', text)) == 1 + 20
    shown = re.findall(r'<td class="n rank" data-v="\d+">(\d+=?)</td>', text)
    assert shown == ["1="] * 24
    assert "all-targets" not in re.sub("<style>.*?</style>", "", render_page(report), flags=re.DOTALL)


def test_a_timeline_has_the_time_of_the_answer(report):
    """The drawn step is one of several."""
    drawn = report.timelines.predicted[0]
    answered = next(target for target in report.targets if target.label == drawn.label).step.step_time_us
    longer = replace(drawn, time_us=1.5 * answered)
    titles = [
        one.title for one in draw_timelines(replace(report, timelines=replace(report.timelines, predicted=(longer,))))
    ]
    said = format_duration(answered)
    assert titles[1] == f"{drawn.label}, {said} (drawn: {format_duration(1.5 * answered)})"


def test_its_bytes_hang_on_the_report_alone(report):
    text = render_page(report)
    assert render_page(report) == text


def test_no_two_places_have_one_address(report):
    text = render_page(replace(report, findings=report.findings * 2))
    found = Counter(re.findall(r'\sid="([^"]*)"', text))
    assert [name for name, count in found.items() if count > 1] == []
    assert set(re.findall(r'href="#([^"]*)"', text)) <= {*found}


def test_nothing_is_asked_of_others(report):
    text = render_page(report)
    assert "default-src 'none'" in text
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert not re.search(r"""\son\w+\s*=\s*["']""", text.split("<script", 1)[0])


class Scripts(HTMLParser):
    """The policy of a page and the scripts that it must allow."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.scripts, self.inside = "", [], False

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "script":
            self.inside = given.get("type") is None
            self.scripts += [""] * self.inside
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"


def test_the_policy_allows_the_scripts_and_no_others(report):
    parser = Scripts()
    parser.feed(render_page(report))
    allowed = re.search(r"script-src (.*)", parser.policy)[1].split()
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in parser.scripts]
    assert allowed == [f"'sha256-{digest}'" for digest in digests]


def test_names_are_shown_and_never_run(nasty):
    text = render_page(nasty)
    assert "<img src=x" not in text
    assert NASTY in read_kernels(text)[0]


def test_kernels_are_those_of_the_report(report):
    text = render_page(report)
    assert len(read_kernels(text)) == len(report.kernels)
    for kernel in report.kernels[:3]:
        times = [format_duration(us) for us in (kernel.time_us, *kernel.predicted_us)]
        assert any(all(shown in row for shown in (kernel.name, *times)) for row in read_kernels(text))


def test_a_kernel_has_the_same_address_in_every_report(report):
    longest, other = (
        report.kernels[0],
        replace(report.kernels[0], time_us=1.0, predicted_us=(), limiters=(), methods=()),
    )
    [row] = list_kernel_rows(replace(report, kernels=(replace(other, predicted_tiles=()),), targets=(), decision=None))
    assert row.id in [one.id for one in list_kernel_rows(report) if one.kernel is longest]


def list_kernel_rows(report):
    return [row for family in build_kernel_families(report) for row in family.rows]


def test_what_is_left_out_is_said_and_the_page_stays_small(report):
    long = [replace(kernel, name=f"{'k' * 4000}{i}") for i, kernel in enumerate(report.kernels * 200)]
    text = render_page(replace(report, kernels=tuple(long)))
    assert len(text.encode()) < MAX_PAGE_BYTES
    rows = read_kernels(text)
    assert len(rows) <= MAX_ROWS
    assert f"The {len(rows):,} of {len(long):,} kernels" in text
    families = build_kernel_families(replace(report, kernels=tuple(long)))
    assert sum(len(family.rows) + family.omitted for family in families) == len(long)
    assert sum(family.time_us for family in families) == pytest.approx(sum(kernel.time_us for kernel in long))


def test_no_steps_no_shapes_no_gpu(nasty):
    unknown = replace(nasty, kernels=tuple(replace(k, flops=None, bytes=None) for k in nasty.kernels))
    assert "record_shapes=True" not in render_page(unknown)
    text = render_page(replace(unknown, source=replace(nasty.source, shapes_recorded=False)))
    assert "record_shapes=True" in text
    assert 'id="steps"' not in text


@pytest.mark.parametrize("is_writable", [True, False])
def test_compiled_templates_are_kept_where_that_is_possible(report, tmp_path, monkeypatch, is_writable):
    whole = render_page(report)
    folder = tmp_path / "kept"
    if is_writable:
        folder.mkdir()
    monkeypatch.setattr(page, "cache_from_source", lambda _: str(folder / "page.pyc"))
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    for _ in range(2):
        page.get_environment.cache_clear()
        assert render_page(report) == whole
    page.get_environment.cache_clear()
    assert bool([*tmp_path.glob("kept/page-*.jinja")]) is is_writable
