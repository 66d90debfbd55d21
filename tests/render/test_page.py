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

from tests.render.conftest import NASTY
from tracekit.format import format_dollars, format_duration
from tracekit.messages import Severity, Template
from tracekit.messages.findings import CPU_IS_BOTTLENECK, DOES_NOT_FIT, LARGER_BATCH
from tracekit.render import markdown, xlsx
from tracekit.render.charts.svg import draw_svg
from tracekit.render.findings import group_findings
from tracekit.render.html import render_page
from tracekit.render.html.rows import MAX_ROWS, build_kernel_families
from tracekit.render.sentences import build_headline
from tracekit.reporting.findings.finding import Bottleneck, Finding
from tracekit.reporting.sections.what_if import EditSaving

MAX_PAGE_BYTES = 500_000


def read_kernels(text: str) -> list[str]:
    """Return the texts of the kernel table's rows."""
    return [html.unescape(re.sub("<[^>]*>", " ", row)) for row in re.findall(r'<tr id="kernel-.*?</tr>', text, re.S)]


def test_it_answers_first(report):
    text = render_page(report)
    target = max(report.targets, key=lambda target: target.speedup)
    assert text.index(f"{target.speedup:.2f}× as fast") < text.index('id="kernels"')
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
    summary = openpyxl.load_workbook(io.BytesIO(xlsx.render_workbook(told)))["summary"].values
    assert [said for what, said in summary if what == "note"] == ["all", f"{one.label}: {fits}"]


def test_the_headline_compares_samples_where_the_batch_is_another(report):
    best = max(report.targets, key=lambda target: target.speedup)
    doubled = replace(best, batch_ratio=2.0, speedup=0.75)
    said = build_headline(replace(report, targets=(doubled,)))
    assert said.after == " with 2 times the batch: 1.50× as fast for each sample."


def test_the_headline_takes_the_cheapest_then_the_surest_of_equals(report):
    sure = replace(report.targets[0], speedup=1.99, high_us=2.0)
    unsure, slow = replace(sure, speedup=2.0, high_us=9.0), replace(sure, speedup=1.5)

    def said(*targets):
        whole = build_headline(replace(report, targets=targets))
        return whole.before + whole.after

    assert ", as fast as any of 3, it would take: 1.99× as fast." in said(sure, unsure, slow)
    cheap = replace(unsure, price=1.0)
    assert ", as fast as any of 3, it would take: 2.00× as fast." in said(replace(sure, price=2.0), cheap, slow)
    assert ", the fastest of 3, it would take: 2.00× as fast." in said(unsure, slow, slow)


def test_what_lacks_the_memory_is_never_the_answer(report):
    """However fast it is; where nothing has the memory, the headline says that first."""
    fast, slow = (replace(report.targets[0], speedup=speedup) for speedup in (4.0, 2.0))
    lacking = replace(fast, memory=replace(fast.memory, fits=False))
    told = Finding(DOES_NOT_FIT(target="it", reason="it is too large"), None, (), fast.label)
    whole = build_headline(replace(report, targets=(lacking, slow), findings=(told,)))
    assert " (1 more lacks the memory), it would take" in whole.before
    assert whole.after == ": 2.00× as fast."
    alone = build_headline(replace(report, targets=(lacking,), findings=(told,)))
    assert alone.after == ": 4.00× as fast."
    assert ". The job doesn't fit into the memory of it: it is too large. " in alone.detail


def test_the_headline_says_how_sure_it_is_and_where_it_may_be_otherwise(report):
    """The measured step takes 11.0 ms."""
    one = report.targets[0]

    def said(low_us, high_us, **changed):
        target = replace(one, low_us=low_us, high_us=high_us, **changed)
        return build_headline(replace(report, targets=(target,))).detail

    assert said(6e3, 9e3).startswith("90 % interval 6.00–9.00 ms. ")
    assert said(6e3, 12e3).startswith("90 % interval 6.00–12.0 ms, so that it may be no faster. ")
    assert "no slower" in said(10e3, 30e3, speedup=0.5)
    assert "so that" not in said(20e3, 40e3, batch_ratio=4.0, speedup=0.4)


def test_the_headline_says_where_the_same_samples_cost_least(report):
    dear, cheap = (replace(one, price=price) for one, price in zip(report.targets, (9.0, 1.0), strict=True))
    told = replace(report, targets=(dear, cheap))
    least = f"Cheapest is AMD Instinct MI300X: ${format_dollars(cheap.dollars_per_million)} for a million tokens."
    assert least in build_headline(told).detail
    uncounted = replace(told, source=replace(report.source, batch=None))
    assert f": ${format_dollars(cheap.dollars_per_1000_steps)} for 1,000 steps." in build_headline(uncounted).detail
    lacking = replace(cheap, memory=replace(cheap.memory, fits=False))
    today = replace(report.source, dollars_per_million=1e-4)
    assert "Cheapest" not in build_headline(replace(report, targets=(dear, lacking))).detail
    assert (
        "as measured: $0.00010 for a million tokens"
        in build_headline(replace(report, source=today, targets=(dear, lacking))).detail
    )
    assert "Cheapest" not in build_headline(report).detail
    unpriced = replace(report, source=today, targets=(dear, replace(cheap, price=None)))
    assert "Cheapest of the 2 with a price is " in build_headline(unpriced).detail


def test_a_job_of_several_gpus_is_told_as_one(report):
    """Or eight GPUs against sixty-four would read as one against sixty-four."""
    eight = replace(report, source=replace(report.source, ranks=8))
    assert build_headline(eight).before.startswith("A step takes 11.0 ms on 8 × NVIDIA A100")
    assert "8 ×" not in build_headline(report).before
    unnamed = replace(report, source=replace(report.source, ranks=8, gpu=None))
    assert build_headline(unnamed).before.startswith("A step takes 11.0 ms on the 8 measured GPUs. ")


def test_a_trace_without_marks_says_what_its_step_is(report):
    text = render_page(replace(report, source=replace(report.source, steps=1, steps_marked=False)))
    assert "synthetic, no steps marked: all of it counts as one" in text
    assert "synthetic, median of 2 steps" in render_page(report)


def test_the_headline_tells_of_edits(report):
    edit = EditSaving("no-sync()", "", 1, 1.0, 2.0, ())
    assert build_headline(replace(report, what_if=(edit,))).after.startswith(" with the what-if edits: ")


def test_its_bytes_hang_on_the_report_alone(report):
    text = render_page(report)
    draw_svg.cache_clear()
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
