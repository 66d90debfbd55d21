"""Batches of a serving engine in the words of serving; times in microseconds, one kernel a batch."""

import io
import json
import re

import openpyxl
import pytest

from tests.asking import predict
from tracekit.render.html.page import render_page
from tracekit.render.json import dump_prediction
from tracekit.render.markdown import render_report as render_markdown
from tracekit.render.tables import render_workbook
from tracekit.reporting import build_report
from tracekit.reporting.build import build_prediction_report
from tracekit.reporting.model import Report
from tracekit.reporting.tables import build_answer_frame
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder

PREFILL = "execute_512_context_2(512)_generation_0(0)"
DECODE = "execute_8_context_0(0)_generation_8(8)"
MIXED = "execute_260_context_1(256)_generation_4(4)"
GAP_US = 10


def serve(*batches: tuple[str, float], metadata: dict | None = None) -> TraceBuilder:
    """Batches one after the other, each a kernel of the given time: a batch takes as long, and the gap."""
    builder, start = TraceBuilder(A100), 0.0
    for mark, time in batches:
        builder.annotation(mark, start, 5).kernel("gemm_k", start + GAP_US, time, launch=start + 2)
        start += time + GAP_US
    builder.metadata |= metadata or {}
    return builder


@pytest.fixture(scope="module")
def report() -> Report:
    """Eight sequences decode in 100 us, two prompts of 256 tokens take 400 us; the first batch isn't counted."""
    batches = [(DECODE, 90), (PREFILL, 390), (DECODE, 90), (DECODE, 90), (PREFILL, 390), (DECODE, 90)]
    run = prepare_run(serve(*batches).load())
    return build_prediction_report(predict(run, ["h100-sxm", "t4"]))


def test_prefill_and_decode_are_measured_apart(report):
    prefill, decode = report.serving.kinds
    assert (prefill.kind, prefill.batches, prefill.prompts, prefill.tokens) == ("prefill", 2, 2, 512)
    assert (decode.kind, decode.batches, decode.sequences, decode.tokens) == ("decode", 3, 8, 8)
    first, output = prefill.speeds[0], decode.speeds[0]
    assert (first.first_token_us.likely, first.output_token_us) == (pytest.approx(400, abs=10), None)
    assert (output.output_token_us.likely, output.first_token_us) == (pytest.approx(100, abs=10), None)
    assert first.tokens_per_s.likely == pytest.approx(512 / first.first_token_us.likely * 1e6)
    assert output.tokens_per_s.likely == pytest.approx(8 * output.tokens_per_s_per_user.likely)
    assert output.tokens_per_s_per_user.likely == pytest.approx(1e6 / output.output_token_us.likely)


def test_the_step_is_that_of_the_usual_kind(report):
    decode = report.serving.kinds[1].speeds
    assert [speed.label for speed in decode] == ["measured", "h100-sxm", "t4"]
    assert decode[0].batch_us.likely == report.source.step_time_us
    for speed, target in zip(decode[1:], report.targets, strict=True):
        assert speed.batch_us.ordered == (target.low_us, target.step.step_time_us, target.high_us)


def test_a_target_has_intervals_of_each_kind(report):
    for served in report.serving.kinds:
        for speed in served.speeds[1:]:
            for figure in (speed.batch_us, speed.tokens_per_s, speed.tokens_per_s_per_gpu):
                assert figure.low <= figure.likely <= figure.high
            assert not speed.batch_us.is_exact
        assert served.speeds[0].batch_us.is_exact


@pytest.mark.parametrize(
    ("marks", "codes"),
    [
        ([PREFILL, DECODE], ["first-token-assumed", "output-token-assumed"]),
        ([DECODE], ["prefill-not-traced", "output-token-assumed"]),
        ([PREFILL], ["first-token-assumed", "decode-not-traced"]),
        ([MIXED], ["first-token-assumed", "output-token-assumed"]),
        (["step[DECODE bs=8]"], ["prefill-not-traced", "output-token-assumed"]),
        (["step[EXTEND bs=2 toks=512]"], ["first-token-assumed", "decode-not-traced"]),
        (
            ["execute_16_context_0(0)_generation_8(16)"],
            ["prefill-not-traced", "output-token-assumed", "tokens-speculated"],
        ),
    ],
)
def test_what_is_assumed_and_what_a_trace_does_not_tell(marks, codes):
    run = prepare_run(serve(*((mark, 90) for mark in marks for _ in range(2))).load())
    assert [note.code for note in build_report(run).serving.notes] == codes


def test_requests_as_sglang_marks_them():
    marks = ["step[EXTEND bs=2 toks=512]", "step[DECODE bs=8]"]
    prefill, decode = build_report(prepare_run(serve(*((mark, 90) for mark in marks * 2)).load())).serving.kinds
    assert (prefill.prompts, prefill.sequences, prefill.tokens) == (2, None, 512)
    assert (decode.prompts, decode.sequences, decode.tokens) == (None, 8, 8)


def test_chosen_batches_of_two_kinds_have_no_common_size():
    batches = [(DECODE, 90), (PREFILL, 390), (DECODE, 90), (PREFILL, 390)]
    report = build_report(prepare_run(serve(*batches).load(), steps="1:2"))
    assert (report.source.batch, report.source.per_second) == (None, None)
    assert [(served.kind, served.batches) for served in report.serving.kinds] == [("prefill", 1), ("decode", 1)]


def test_gpus_that_serve_together_share_the_tokens():
    job = {"distributedInfo": {"rank": 0, "world_size": 4}}
    (decode,) = build_report(prepare_run(serve((DECODE, 90), (DECODE, 90), metadata=job).load())).serving.kinds
    speed = decode.speeds[0]
    assert speed.gpus == 4
    assert speed.tokens_per_s_per_gpu.likely == pytest.approx(speed.tokens_per_s.likely / 4)


def test_other_steps_are_not_served():
    run = prepare_run(TraceBuilder(A100).step(1, 0, 100).kernel("gemm", 10, 50, launch=2).load())
    assert build_report(run).serving is None


def test_every_form_has_it(report):
    assert Report.from_json(report.to_json()).serving == report.serving
    for text in (render_page(report), render_markdown(report)):
        assert {"first token", "per output token"} <= set(re.findall("first token|per output token", text))
    shown = json.loads(dump_prediction(report))["serving"]
    assert [kind["kind"] for kind in shown["kinds"]] == ["prefill", "decode"]
    assert shown["kinds"][0]["speeds"][1]["first_token_us"]["high"] == report.serving.kinds[0].speeds[1].batch_us.high
    sheet = openpyxl.load_workbook(io.BytesIO(render_workbook(report)))["serving"]
    heads, *rows = sheet.iter_rows(values_only=True)
    assert len(rows) == 6
    assert rows[1][heads.index("first_token_us_low")] == pytest.approx(report.serving.kinds[0].speeds[1].batch_us.low)


def test_the_step_has_the_words_of_serving_as_columns(report):
    """Eight sequences decode in 100 us: 0.1 ms a token, 80,000 tokens a second, in every form."""
    source, h100, _ = build_answer_frame(report).iter_rows(named=True)
    assert (source["tpot_ms"], source["ttft_ms"]) == (pytest.approx(0.1, abs=0.01), None)
    assert source["tokens_per_s"] == pytest.approx(8 / source["step_time_us"] * 1e6)
    assert (h100["tpot_ms_low"], h100["tpot_ms_high"]) == (h100["low_us"] / 1e3, h100["high_us"] / 1e3)
    told = json.loads(dump_prediction(report))["targets"][0]
    assert told["tpot_ms"] == {"likely": h100["tpot_ms"], "low": h100["tpot_ms_low"], "high": h100["tpot_ms_high"]}
    assert told["ttft_ms"] is None
    assert told["tokens_per_s"]["likely"] == pytest.approx(8e3 / h100["tpot_ms"])
    prefill = prepare_run(serve((PREFILL, 390), (PREFILL, 390)).load())
    first = build_answer_frame(build_prediction_report(predict(prefill, ["h100-sxm"]))).row(0, named=True)
    assert (first["ttft_ms"], first["tpot_ms"]) == (pytest.approx(0.4, abs=0.01), None)
    assert first["tokens_per_s"] == pytest.approx(512 / first["ttft_ms"] * 1e3)
    assert "TPOT" in render_page(report)
    assert "TTFT" not in render_page(report)


def test_accepted_tokens_divide_the_time_of_a_token():
    """Steps of 100 us give a sequence 2 tokens, from 1 to 4: 0.05 ms, from 0.025 to 0.1."""
    speculated = "execute_context_0(0)_generation_8(32)"
    run = prepare_run(serve(*[(speculated, 90)] * 4).load())
    source = build_answer_frame(build_prediction_report(predict(run, ["a100-sxm-80gb"]))).row(0, named=True)
    assert [source[f"tpot_ms{end}"] for end in ("_low", "", "_high")] == pytest.approx([0.025, 0.05, 0.1])
