"""Two runs side by side; times in microseconds."""

import json

import pytest

import tracekit as tk
from tests.codes import list_codes
from tests.jobs import gradient_step, job
from tracekit.errors import TraceError, TracekitError
from tracekit.messages.reports import KERNELS_UNLISTED, PROGRAMS_DIFFER, RANK_WITHOUT_OTHERS
from tracekit.render import json as as_json
from tracekit.render.compare import find_comparison_warnings, render_comparison
from tracekit.render.html.comparison import render_comparison_page
from tracekit.render.screen import as_text
from tracekit.reporting import build_report, saved_prediction
from tracekit.reporting.comparison import compare, to_side
from tracekit.testing import A100, TraceBuilder

BF16 = ["c10::BFloat16"] * 2
H100 = {**A100, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "numSms": 132}


def run(mm_us, other="aten::add", kernel="ampere_bf16_s16816gemm", device=A100):
    builder = TraceBuilder(device).op("aten::mm", 0, 10, dims=[[4096, 4096], [4096, 4096]], types=BF16)
    builder.kernel(kernel, 10, mm_us, launch=2).op(other, 12, 10, dims=[[4096], [4096]], types=BF16)
    builder.kernel("vectorized_elementwise_kernel", 11 + mm_us, 50, launch=14)
    return builder.call("cudaDeviceSynchronize", 24, mm_us + 40).load()


def test_kernels_match_by_op_and_shape_whatever_their_name():
    found = tk.compare(run(900), run(500, kernel="nvjet_tst_128x256", device=H100))
    assert found.a.gpu == "a100-sxm-80gb"
    assert found.b.gpu == "h100-sxm"
    change = found.matched[0]
    assert change.what == "aten::mm bf16 4096×4096, 4096×4096"
    assert (change.a_us, change.b_us, change.change_us) == (900, 500, -400)
    assert found.change_pct == pytest.approx(100 * (561 / 961 - 1), abs=1)
    parts = {change.what: change.change_us for change in found.parts}
    assert parts["gemm"] == pytest.approx(-400)
    assert sum(parts.values()) == pytest.approx(found.b.step_time_us - found.a.step_time_us)


@pytest.mark.parametrize("given", ["after.json.gz", 3, None])
def test_what_cannot_be_compared_is_told(given):
    with pytest.raises(TracekitError, match=r"is no trace, report or predictions\. Load it: tk\.load"):
        tk.compare(run(900), given)


def test_new_and_vanished_kernels():
    found = tk.compare(run(900, other="aten::add"), run(900, other="aten::mul"))
    assert [change.what for change in found.new] == ["aten::mul bf16 4096, 4096"]
    assert [change.what for change in found.vanished] == ["aten::add bf16 4096, 4096"]
    assert found.new[0].change_us == 50
    assert found.vanished[0].change_us == -50


def test_runs_that_share_few_kernels_are_doubted():
    """Of 900 + 50 and 900 + 50 the products are shared, 1800 of 1900; of another shape nothing is."""
    found = tk.compare(run(900, other="aten::add"), run(900, other="aten::mul"))
    assert found.shared_pct == pytest.approx(100 * 1800 / 1900)
    assert not list(find_comparison_warnings(found))
    other = TraceBuilder(H100).op("aten::mm", 0, 10, dims=[[64, 64], [64, 64]], types=BF16)
    predictions = tk.predict(run(900), gpu="h100-sxm")
    found = tk.compare(predictions, other.kernel("nvjet_tst_128x256", 10, 900, launch=2).load())
    assert found.shared_pct == 0
    assert next(find_comparison_warnings(found)) == PROGRAMS_DIFFER(shared_pct=0.0)


def layer(batch, width, mm_us, dtype=BF16, device=H100, fused=False):
    """A product with weights of a width and what follows it, for a batch."""
    shapes = [[batch, width], [width, width]]
    builder = TraceBuilder(device).op("aten::mm", 0, 10, dims=shapes, types=dtype)
    builder.kernel("nvjet_tst_128x256", 10, mm_us, launch=2)
    builder.op("triton_poi_fused_0" if fused else "aten::add", 12, 10, dims=[[batch, width]], types=dtype[:1])
    builder.kernel("vectorized_elementwise_kernel", 11 + mm_us, 2 * mm_us, launch=14)
    return builder.call("cudaDeviceSynchronize", 24, 3 * mm_us).load()


def test_different_programs_are_not_judged_by_each_other():
    """Neither two measured ones nor a prediction for the GPU of the other one's trace."""
    here, other = layer(64, 512, 100), layer(512, 4096, 900)
    for a in (here, tk.predict(here, gpu="h100-sxm")):
        found = tk.compare(a, other)
        assert not found.alike
        assert (found.change_pct, found.more_done_pct, found.longer_pct) == (None, None, None)
        assert (found.error_pct, found.is_inside) == (None, None)
        text = as_text(render_comparison(found, 10))
        assert "A and B are different programs" in text
        assert "off by" not in text
        assert "longer" not in text
        assert "only in" not in text
        page = render_comparison_page(found, 10)
        assert "<strong>different programs</strong>" in page
        assert "off by" not in page
        assert "B / A" not in page
        assert "different programs" in repr(found)


@pytest.mark.parametrize(
    "after",
    [layer(256, 512, 70), layer(64, 512, 70, ["float"] * 2), layer(64, 512, 70, fused=True)],
    ids=["another batch", "another precision", "compiled"],
)
def test_the_same_weights_are_the_same_program(after):
    found = tk.compare(layer(64, 512, 100), after)
    assert found.alike
    assert found.change_pct < 0


def test_without_shapes_ops_tell_the_program():
    def unshaped(name):
        builder = TraceBuilder(H100).op(name, 0, 10).kernel("nvjet_tst_128x256", 10, 100, launch=2)
        return builder.call("cudaDeviceSynchronize", 24, 90).load()

    assert tk.compare(layer(64, 512, 100, fused=True), unshaped("aten::bmm")).alike is False
    assert tk.compare(layer(64, 512, 300), unshaped("aten::mm")).alike is False  # a third of the time
    assert tk.compare(run(900), unshaped("aten::mm")).alike


def test_a_prediction_for_another_layout_is_told_by_its_ops():
    """Its kernels have the traced shapes, those of the job there the shapes of a part."""
    predictions = tk.predict(layer(64, 512, 100), cluster="8xh100-sxm", dp=8)
    assert tk.compare(predictions, layer(64, 64, 100)).alike


def test_a_run_compared_with_itself_has_not_changed():
    found = tk.compare(run(900), run(900))
    assert found.shared_pct == 100
    assert found.change_pct == 0
    assert not found.new
    assert not found.vanished
    assert {change.change_us for change in (*found.parts, *found.matched)} == {0}
    assert found.error_pct is None
    assert {found.a.label, found.b.label} == {"built by hand (A)", "built by hand (B)"}


def test_the_parts_of_both_stand_in_one_order():
    """The product takes longer than the addition in the first run, and less in the second."""
    found = tk.compare(run(900), run(5))
    assert list(found.a.parts) == ["gemm", "elementwise", "idle"]
    assert list(found.b.parts) == list(found.a.parts)


def test_a_prediction_against_the_run_recorded_later():
    predictions = tk.predict(run(900), gpu="h100-sxm")
    step_us = predictions["h100-sxm"].step.step_time_us
    found = tk.compare(predictions, run(500, device=H100))
    assert found.error_pct == pytest.approx(100 * (step_us / found.b.step_time_us - 1))
    assert found.is_inside == (
        predictions["h100-sxm"].low_us <= found.b.step_time_us <= predictions["h100-sxm"].high_us
    )
    far = tk.compare(predictions, run(9000, device=H100))
    assert far.is_inside is False
    assert far.error_pct < -50


def test_a_prediction_from_its_file_is_the_same():
    predictions = tk.predict(run(900), gpu=["h100-sxm", "l40s"])
    content = as_json.dump_prediction(build_report(predictions.run, predictions.targets)).encode()
    later = to_side(run(500, device=H100))
    from_file = compare(saved_prediction.read_prediction(content, "p.json", "H100"), later)
    direct = compare(to_side(predictions, "h100-sxm"), later)
    assert (from_file.parts, from_file.matched) == (direct.parts, direct.matched)
    assert (from_file.error_pct, from_file.is_inside) == (direct.error_pct, direct.is_inside)
    with pytest.raises(TracekitError, match="Choose with --gpu: h100-sxm, l40s"):
        saved_prediction.read_prediction(content, "p.json", None)
    with pytest.raises(TracekitError, match="no prediction for t4"):
        saved_prediction.read_prediction(content, "p.json", "t4")
    with pytest.raises(TracekitError, match="several GPUs"):
        tk.compare(predictions, run(500))
    for name in ("t4", "h1000"):
        with pytest.raises(TracekitError, match=f"'{name}' isn't among these predictions. Choose with gpu=: h100-sxm"):
            tk.compare(predictions, run(500), gpu=name)


def test_a_file_whose_kernels_do_not_go_with_its_targets_is_none_of_predict():
    predictions = tk.predict(run(900), gpu="h100-sxm")
    content = json.loads(as_json.dump_prediction(build_report(predictions.run, predictions.targets)))
    kernel, target = content["kernels"][0], content["targets"][0]
    for of, name, value in ((kernel, "predicted_us", []), (kernel, "shape", "[["), (target, "step_time_us", 0)):
        kept, of[name] = of[name], value
        with pytest.raises(TraceError, match="is not what `tracekit predict --json` writes"):
            saved_prediction.read_prediction(json.dumps(content).encode(), "p.json", None)
        of[name] = kept


def test_of_two_clusters_of_one_gpu_either_can_be_chosen():
    predictions = tk.predict(run(900), cluster=["8xh100-sxm", "2x8xh100-sxm@ndr400"])
    content = as_json.dump_prediction(build_report(predictions.run, predictions.targets)).encode()
    for name in predictions:
        assert saved_prediction.read_prediction(content, "p.json", name).label == f"p, predicted on {name}"
    with pytest.raises(TracekitError, match=r"several of h100-sxm\. Choose with --gpu: 2x8xh100-sxm@ndr400, 8x"):
        saved_prediction.read_prediction(content, "p.json", "h100")


def test_steps_of_different_batches_are_told_by_what_they_get_done():
    """From the file as from Python; of the same batch nothing is said."""
    embedding = {"dims": [[1024, 64], [1, 4096]], "types": [BF16[0], "long int"]}
    builder = TraceBuilder(A100).op("aten::embedding", 0, 10, **embedding).kernel("indexSelect", 10, 50, launch=2)
    builder.op("aten::mm", 12, 10, dims=[[4096, 64], [64, 4096]], types=BF16).kernel("sgemm", 60, 900, launch=14)
    trace = builder.call("cudaDeviceSynchronize", 24, 940).load()
    once, twice = (tk.predict(trace, gpu="h100-sxm", batch=batch) for batch in (None, 2))
    found = tk.compare(once, twice)
    rates = [predictions["h100-sxm"].per_second for predictions in (once, twice)]
    assert found.more_done_pct == pytest.approx(100 * (rates[1] / rates[0] - 1))
    said = "a step of A works through 4,096 tokens, one of B through 8,192 tokens: in the same time B gets "
    assert str(next(find_comparison_warnings(found))).startswith(said)
    files = [as_json.dump_prediction(build_report(each.run, each.targets)).encode() for each in (once, twice)]
    a, b = (saved_prediction.read_prediction(file, "p.json", None) for file in files)
    assert next(find_comparison_warnings(compare(a, b))) == next(find_comparison_warnings(found))
    assert compare(a, a).more_done_pct is None
    assert not list(find_comparison_warnings(compare(a, a)))
    assert found.longer_pct == pytest.approx(100 * (rates[0] / rates[1] - 1))
    measured = tk.compare(twice, trace)
    assert (measured.error_pct, measured.is_inside) == (None, None)
    assert any(
        "with 8,192 tokens a step, the measurement of a100-sxm-80gb" in str(one)
        for one in find_comparison_warnings(measured)
    )
    assert "In the same time B gets <strong>" in render_comparison_page(found, 10)


def test_one_rank_against_all_of_them_is_doubted():
    """Only the ranks together tell waiting from communication."""
    both = to_side(job(gradient_step(100, 200), gradient_step(150, 200)))
    alone = to_side(job(gradient_step(100, 200), world_size=2))
    assert both.label == f"{alone.label} and 1 more"
    assert not list(find_comparison_warnings(compare(both, both)))
    assert not list(find_comparison_warnings(compare(alone, alone)))
    assert next(find_comparison_warnings(compare(both, alone))) == RANK_WITHOUT_OTHERS(side="B")


def test_a_prediction_for_more_ranks_than_were_measured_is_not_judged():
    predictions = tk.predict(run(900), cluster="8xh100-sxm", dp=8)
    content = as_json.dump_prediction(build_report(predictions.run, predictions.targets)).encode()
    for of in (to_side(predictions), saved_prediction.read_prediction(content, "p.json", None)):
        found = compare(of, to_side(run(500, device=H100)))
        assert (found.error_pct, found.is_inside) == (None, None)
        assert any(
            "is for h100-sxm on 8 ranks, the measurement of h100-sxm on 1 rank:" in str(one)
            for one in find_comparison_warnings(found)
        )


def test_kernels_beyond_those_that_a_file_describes_are_matched_too():
    predictions = tk.predict(run(900), gpu="h100-sxm")
    content = as_json.dump_prediction(build_report(predictions.run, predictions.targets), top=1)
    found = compare(saved_prediction.read_prediction(content.encode(), "p.json", None), to_side(run(500, device=H100)))
    assert len(found.matched) == 2
    assert not found.new
    assert "kernels-unlisted" not in list_codes(find_comparison_warnings(found))


def test_a_file_that_leaves_kernels_out_says_so_and_calls_none_new():
    """As predictions were saved at first: the longest kernels, and how many more there are."""
    predictions = tk.predict(run(900), gpu="h100-sxm")
    saved = json.loads(as_json.dump_prediction(build_report(predictions.run, predictions.targets), top=1))
    del saved["other_kernels"]
    found = compare(
        saved_prediction.read_prediction(json.dumps(saved).encode(), "p.json", None), to_side(run(500, device=H100))
    )
    assert [change.what for change in found.new] == ["aten::add bf16 4096, 4096"]
    assert next(find_comparison_warnings(found)) == KERNELS_UNLISTED(side="A", other="B", kernels=1)
    assert "in B, not listed in A" in render_comparison_page(found, 10)
    text = as_text(render_comparison(found, 10))
    assert "in B, not listed in A (1)" in text
    assert "only in" not in text


@pytest.mark.parametrize("content", [b'{"schema_version": 1}', b'{"schema_version": 1, "targets": 3}', b"{"])
def test_other_files_are_no_predictions(content):
    with pytest.raises(TraceError, match=r"p\.json"):
        saved_prediction.read_prediction(content, "p.json", None)
