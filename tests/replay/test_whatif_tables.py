"""Embedding tables of other sizes, as an edit."""

import json
import sys
from pathlib import Path

import pytest

from tests.codes import has_code
from tracekit.cli.app import main
from tracekit.errors import RequestError, WhatIfError
from tracekit.request import PredictRequest, ReportRequest, SweepRequest
from tracekit.request.program_options import ProgramOptions
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.whatif import apply_edits

DIMS = [[100_000, 64], [65_536], [8192], [], [], [], [], [], []]


def look_up(dims: list[list[int]] = DIMS) -> TraceBuilder:
    """A look-up, and an op that doesn't look up."""
    builder = TraceBuilder().op("aten::_embedding_bag", 0, 10, dims=dims, types=["float", "long int", "long int"])
    builder.kernel("void at::native::EmbeddingBag_updateOutputKernel_sum_mean<float, long>(long*)", 50, 20, launch=2)
    builder.op("aten::relu", 20, 10, dims=[[8192, 64]], types=["float"])
    return builder.kernel("void at::native::vectorized_elementwise_kernel<4>(int)", 80, 5, launch=22)


def change(edit: str, builder: TraceBuilder | None = None) -> list[float]:
    """Return the factor of an edit on each kernel's time."""
    program = prepare_run((builder or look_up()).load()).program
    return list(apply_edits(program, [edit]).program.kernel_factor)


def test_look_ups_of_ten_times_the_rows_take_longer_and_others_as_long() -> None:
    looked_up, other = change("tables(100kx64:80)")
    assert 2 < looked_up <= 10.5
    assert other == 1.0


def test_fewer_rows_stay_in_the_cache() -> None:
    large = [[10_000_000, 128], [20_000_000], [131_072], *[[]] * 6]
    assert change("tables(100x128)", look_up(large))[0] < 0.95
    assert change("tables(100Mx128)", look_up(large))[0] > 1.02


def test_the_same_tables_change_nothing() -> None:
    assert change("tables(100kx64:8)") == [1.0, 1.0]


def test_even_indices_hit_more_rows() -> None:
    large = [[10_000_000, 128], [20_000_000], [131_072], *[[]] * 6]
    even, skewed = (change(f"tables(10Mx128:150:{alpha})", look_up(large))[0] for alpha in (0, 1.2))
    assert even > 1.2 * skewed


def test_an_edit_says_what_it_changed() -> None:
    (edit,) = apply_edits(prepare_run(look_up().load()).program, ["tables(100kx64:80)"]).edits
    assert (edit.touched, edit.description.code) == (1, "tables-changed")


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        ("tables(100kx128)", "64 wide"),
        ("tables(2*100kx64)", "2 tables"),
        ("tables(100k)", "is no embedding table"),
        ("tables(0x64)", "as its rows"),
        ("tables()", "It needs a table"),
        ("tables(1x2, 3x4)", "doesn't take"),
        ("tables(family=gemm)", "doesn't take"),
    ],
)
def test_what_a_trace_does_not_tell_is_refused(edit: str, part: str) -> None:
    with pytest.raises(WhatIfError) as refused:
        change(edit)
    assert part in str(refused.value)


def test_without_tables_there_is_nothing_to_change() -> None:
    builder = TraceBuilder().op("aten::relu", 0, 10, dims=[[8, 64]], types=["float"])
    with pytest.raises(WhatIfError, match="no look-ups of known sizes"):
        change("tables(9x64)", builder.kernel("vectorized_elementwise_kernel", 20, 5, launch=2))


def test_without_a_gpu_no_law_scales() -> None:
    builder = look_up()
    builder.metadata.pop("deviceProperties", None)
    with pytest.raises(WhatIfError, match="doesn't name its GPU"):
        change("tables(9x64)", builder)


def test_an_optimizer_over_whole_tables_without_sizes_is_refused() -> None:
    builder = look_up()
    values = [*[""] * 5, "100000", "False", "0", "", "-1"]
    dims = [[8192, 64], [65_536], [65_536], [8192], [], [], [], [], [], []]
    builder.op("aten::_embedding_bag_dense_backward", 100, 10, dims=dims, types=["float"], concrete=values)
    builder.kernel("void compute_grad_weight_bags<float>(int)", 200, 5, launch=102)
    builder.op("aten::_fused_adamw_", 120, 10, dims=[[], []], types=["TensorList", "TensorList"])
    builder.kernel("void at::native::multi_tensor_apply_kernel<int>(int)", 220, 5, launch=122)
    with pytest.raises(WhatIfError, match="updates all rows"):
        change("tables(1Mx64)", builder)
    assert change("tables(100kx64:16)", builder)[0] > 1


def test_the_option_becomes_an_edit_of_a_trace() -> None:
    options = ProgramOptions(table=["9x64", "7x16:2"])
    options.refuse_without_program(PredictRequest(gpu="b200"))
    asked = options.move_tables(ReportRequest(what_if="no-sync()"))
    assert asked.edits == ["no-sync()", "tables(9x64)", "tables(7x16:2)"]
    assert ProgramOptions().move_tables(asked) is asked
    with pytest.raises(RequestError, check=has_code("tables-of-programs")):
        options.move_tables(SweepRequest(gpu="l4"))
    with pytest.raises(RequestError, check=has_code("options-of-programs")):
        ProgramOptions(bottom_mlp="8,4").refuse_without_program(PredictRequest(gpu="b200"))


def test_the_command_edits_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(look_up().to_json())
    shown = {}
    for table in ("100kx64:8", "100kx64:80"):
        arguments = ["tracekit", "predict", str(path), "--gpu", "l4", "--table", table, "--json", "-q"]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0
        shown[table] = json.loads(capsys.readouterr().out)["targets"][0]["kernel_time_us"]
    assert shown["100kx64:80"] > 1.5 * shown["100kx64:8"]
