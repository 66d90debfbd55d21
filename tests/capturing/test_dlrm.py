"""DLRMs as their configurations describe them."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tests.codes import has_code
from tracekit.capturing.options import CaptureOptions
from tracekit.errors import ModelConfigError, RequestError, TracekitError
from tracekit.models.captured import FACTS_KEY, CaptureFacts
from tracekit.models.dlrm import KEYS, DlrmConfig, DlrmEdits, TableSpec, parse_dlrm_config, parse_mlp, read_dlrm_config
from tracekit.models.lookups import ZipfPattern
from tracekit.run import prepare_run
from tracekit.workload.ops.fbgemm import compute_fbgemm_work
from tracekit.workload.signature import Signature

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")

from tracekit.capturing.dlrm import CrossInteraction, Dlrm  # noqa: E402
from tracekit.capturing.program import CapturedProgram  # noqa: E402
from tracekit.capturing.steps import (  # noqa: E402
    NamedProgram,
    capture_named,
    predict_steps,
)

RECORDED = Path(__file__).parents[2] / "sample_traces" / "recorded"
TABLES = [{"rows": 1000, "width": 16, "pooling": 2.5, "count": 2}, {"num_embeddings": 50, "embedding_dim": 16}]
CONFIG = {
    "model_type": "dlrm",
    "tables": TABLES,
    "dense_features": 4,
    "bottom_mlp": [32, 16],
    "top_mlp": [8, 1],
    "batch_size": 64,
}


def parse(**changes: Any) -> DlrmConfig:
    """Parse the configuration with some changes."""
    found = parse_dlrm_config(json.dumps(CONFIG | changes).encode(), "dlrm.json")
    assert found is not None
    return found


@pytest.fixture
def capture_step(tmp_path: Path) -> Callable[..., CapturedProgram]:
    """Capture a step of the configuration with some changes."""

    def capture(batch: int | None = None, options: CaptureOptions | None = None, **changes: Any) -> CapturedProgram:
        path = tmp_path / "dlrm.json"
        path.write_text(json.dumps(CONFIG | changes))
        return NamedProgram(str(path), options or CaptureOptions(train=True)).capture_batch(batch)

    return capture


Capture = Callable[..., CapturedProgram]


def list_shapes(program: CapturedProgram, op: str) -> list[Any]:
    """List the inputs of an op's calls."""
    return [call.dims for call in program.calls if call.op == op]


def test_a_configuration_has_torchrec_names_and_words_for_tables() -> None:
    tables = [*TABLES, "3*1kx16:7:1.2", {"num_embeddings": 9, "embedding_dim": 16, "pooling_factor": 4, "name": "t"}]
    assert parse(tables=tables).tables == (
        TableSpec(2, 1000, 16, 2.5),
        TableSpec(1, 50, 16),
        TableSpec(3, 1000, 16, 7.0, 1.2),
        TableSpec(1, 9, 16, 4),
    )


def test_what_is_left_out_is_as_in_mlperf() -> None:
    found = parse_dlrm_config(b'{"model_type": "dlrm", "tables": ["26*1Mx128"]}', "dlrm.json")
    assert found is not None
    assert found.dense_features == 13
    assert found.bottom_widths == (512, 256, 128)
    assert found.top_mlp == (1024, 1024, 512, 256, 1)
    assert (found.interaction, found.lookup, found.has_sparse_gradients) == ("dot", "embedding_bag", True)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"model_type": "llama"}', b"[" * 100_000])
def test_other_texts_are_no_dlrm(text: bytes) -> None:
    assert parse_dlrm_config(text, "config.json") is None


def test_a_missing_file_is_no_dlrm(tmp_path: Path) -> None:
    assert read_dlrm_config(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("changes", "code", "part"),
    [
        ({"tables": []}, "dlrm-without-tables", "dlrm.json"),
        ({"tables": 3}, "dlrm-value", "tables"),
        ({"tables": [4]}, "dlrm-value", "tables[0]"),
        ({"tables": [{"rows": 4}]}, "dlrm-value", "tables[0].width"),
        ({"tables": [{"rows": "4", "width": 16}]}, "dlrm-value", "tables[0].rows"),
        ({"tables": [{"rows": 4.5, "width": 16}]}, "dlrm-value", "tables[0].rows"),
        ({"tables": [{"rows": 4, "width": 16, "pooling": True}]}, "dlrm-value", "tables[0].pooling"),
        ({"tables": [{"rows": 0, "width": 16}]}, "dlrm-table", "as its rows"),
        ({"tables": ["4x"]}, "dlrm-table", "tables[0]"),
        ({"tables": [{"rows": 4, "width": 16, "depth": 1}]}, "dlrm-key-unknown", "depth"),
        ({"tables": ["10000*4x16"] * 2}, "dlrm-tables-too-many", "20000"),
        ({"layers": 3}, "dlrm-key-unknown", "layers"),
        ({"dense_features": -1}, "dlrm-value", "dense_features"),
        ({"bottom_mlp": []}, "dlrm-value", "bottom_mlp"),
        ({"bottom_mlp": [32, 0]}, "dlrm-value", "bottom_mlp"),
        ({"bottom_mlp": "32-16"}, "dlrm-value", "bottom_mlp"),
        ({"top_mlp": [1] * 65}, "dlrm-value", "top_mlp"),
        ({"interaction": "sum"}, "dlrm-value", "dot or dcn or cat"),
        ({"batch_size": 2**21}, "dlrm-value", "batch_size"),
        ({"sparse_gradients": "yes"}, "dlrm-value", "sparse_gradients"),
        ({"lookup": "hugectr"}, "dlrm-value", "lookup"),
        ({"table_optimizer": "adam"}, "dlrm-table-optimizer", "adam"),
        ({"bottom_mlp": [32, 8]}, "dlrm-widths-differ", "16, 8"),
        ({"tables": ["4x16", "4x32"]}, "dlrm-widths-differ", "16, 32"),
    ],
)
def test_an_impossible_configuration_is_refused(changes: dict[str, Any], code: str, part: str) -> None:
    with pytest.raises(ModelConfigError, check=has_code(code)) as refused:
        parse(**changes)
    assert part in str(refused.value)


def test_tables_of_several_widths_are_joined() -> None:
    assert [one.width for one in parse(interaction="cat", tables=["4x16", "4x32"]).tables] == [16, 32]


@pytest.mark.parametrize(("text", "widths"), [("512,256,128", (512, 256, 128)), ("13-2", (13, 2)), (" 7 ", (7,))])
def test_an_mlp_is_written_as_its_widths(text: str, widths: tuple[int, ...]) -> None:
    assert parse_mlp(text) == widths


@pytest.mark.parametrize("text", ["", "a", "0", "1,,2", "-1", "1.5", "99999999", ",".join(["1"] * 65)])
def test_what_is_no_mlp_is_refused(text: str) -> None:
    with pytest.raises(RequestError, check=has_code("mlp-malformed")):
        parse_mlp(text)


def test_edits_replace_parts() -> None:
    edits = DlrmEdits(tables=(TableSpec(1, 7, 8),), bottom_mlp=(4, 8))
    edited = edits.apply(parse())
    assert (edited.tables, edited.bottom_mlp, edited.top_mlp) == (edits.tables, (4, 8), (8, 1))
    assert DlrmEdits().apply(parse()) == parse()


def test_the_dot_interaction_multiplies_all_results(capture_step: Capture) -> None:
    """Three tables and the dense result: 4 x 4 products of each sample, of which 6 lie below the diagonal."""
    step = capture_step()
    assert list_shapes(step, "aten::_embedding_bag") == [
        [[1000, 16], [160], [64], [], [], [], [], [], []],
        [[1000, 16], [160], [64], [], [], [], [], [], []],
        [[50, 16], [64], [64], [], [], [], [], [], []],
    ]
    assert list_shapes(step, "aten::bmm")[0] == [[64, 4, 16], [64, 16, 4]]
    assert list_shapes(step, "aten::addmm")[2][1:3] == [[64, 16 + 6], [22, 8]]
    assert step.facts.parameters == 2 * 16_000 + 800 + (4 * 32 + 32) + (32 * 16 + 16) + (22 * 8 + 8) + (8 + 1)


def test_a_sparse_gradient_changes_only_the_rows_looked_up(capture_step: Capture) -> None:
    step = capture_step()
    assert list_shapes(step, "aten::index_select") == [[[64, 16], [], [size]] for size in (64, 160, 160)]
    assert [dims[:4] for dims in list_shapes(step, "aten::index_add_")] == [
        [[50, 16], [], [64], [64, 16]],
        [[1000, 16], [], [160], [160, 16]],
        [[1000, 16], [], [160], [160, 16]],
    ]
    dense = capture_step(sparse_gradients=False)
    assert list_shapes(dense, "aten::index_add_") == []
    assert len(list_shapes(dense, "aten::_embedding_bag_backward")) == 3


def test_the_optimizer_leaves_tables_alone_that_the_backward_pass_updates(capture_step: Capture) -> None:
    options = CaptureOptions(train=True, optimizer="fused-adam")
    of_layers = [[32, 4], [32], [16, 32], [16], [8, 22], [8], [1, 8], [1]]
    (updated,) = list_shapes(capture_step(options=options), "aten::_fused_adam_")
    assert updated[0] == of_layers
    (updated,) = list_shapes(capture_step(options=options, sparse_gradients=False), "aten::_fused_adam_")
    assert sorted(map(tuple, updated[0])) == sorted([*map(tuple, of_layers), (1000, 16), (1000, 16), (50, 16)])


def test_fbgemm_looks_up_in_all_tables_at_once(capture_step: Capture) -> None:
    """2,050 rows have numbers of 12 bits, which take two passes to sort."""
    step = capture_step(lookup="fbgemm", table_optimizer="rowwise_adagrad")
    (looked_up,) = (call for call in step.calls if "codegen_forward" in call.op)
    assert looked_up.op == "fbgemm::split_embedding_codegen_forward_unweighted_cuda"
    assert (looked_up.dims[0], looked_up.dims[4], looked_up.dims[8:10]) == ([2050 * 16], [3], [[384], [3 * 64 + 1]])
    assert looked_up.concrete[6] == "48"
    assert looked_up.concrete[10:] == ["[1000, 1000, 50]", "[16, 16, 16]", "[160, 160, 64]"]
    (checked,) = (call for call in step.calls if call.op == "fbgemm::bounds_check_indices")
    assert (checked.dims[:3], checked.kernels) == ([[3], [384], [193]], ("bounds_check_indices_kernel",))
    (updated,) = (call for call in step.calls if "codegen_rowwise_adagrad" in call.op)
    assert updated.kernels.count("DeviceRadixSortOnesweepKernel") == 2
    assert updated.dims[0] == [64, 48]
    bare = capture_step(lookup="fbgemm")
    assert step.facts.held_bytes - bare.facts.held_bytes == -(-2050 * 4 // 512) * 512


def test_fbgemms_kernels_are_known(tmp_path: Path) -> None:
    path = tmp_path / "dlrm.json"
    path.write_text(json.dumps(CONFIG | {"lookup": "fbgemm"}))
    trace, _ = capture_named(str(path), CaptureOptions(train=True), None)
    kernels = prepare_run(trace).program.kernels
    updating = kernels.filter(kernels["op"].str.contains("codegen_sgd"))
    assert updating["bytes"].null_count() == 0
    assert updating.height == 12


def test_each_table_of_fbgemm_has_its_own_rows() -> None:
    """All 64 bags of a table of one row read that row, and those of the large one a row each."""
    sizes = ["[1, 1000000]", "[16, 16]", "[64, 64]"]
    dims = [[16_000_016], [0], [0], [2], [2], [2], [], [], [128], [129], [], [], []]
    concrete = ["", "", "", "", "", "", "32", "16", "", "", *sizes]
    types = ["float", "float", "float", "int", "long int", "int", "Scalar", "Scalar", "long int", "long int"]
    signature = Signature.parse(
        "fbgemm::split_embedding_codegen_forward_unweighted_cuda",
        json.dumps(dims),
        json.dumps([*types, *["ScalarList"] * 3]),
        json.dumps(concrete),
    )
    columns = compute_fbgemm_work(signature, "split_embedding_codegen_forward_unweighted_kernel", 4, ZipfPattern(0))
    assert columns is not None
    listed, written = (128 + 128 + 1) * 8, 128 * 16 * 4
    assert columns["bytes"] == pytest.approx(listed + written + (1 + 64) * 16 * 4, rel=0.01)


@pytest.mark.parametrize("lookup", ["embedding_bag", "fbgemm"])
def test_each_table_has_its_own_skew(tmp_path: Path, lookup: str) -> None:
    def sum_bytes(alpha: float | None, zipf: float | None = None) -> int:
        path = tmp_path / "dlrm.json"
        tables = [{"rows": 100_000, "width": 16, "pooling": 100} | ({"alpha": alpha} if alpha is not None else {})]
        path.write_text(json.dumps(CONFIG | {"tables": tables, "lookup": lookup}))
        trace, _ = capture_named(str(path), CaptureOptions(), None)
        kernels = prepare_run(trace, indices=None if zipf is None else ZipfPattern(zipf)).program.kernels
        return int(kernels.filter(kernels["op"].str.contains("embedding"))["bytes"].sum())

    assert sum_bytes(0.0) > sum_bytes(1.05) > sum_bytes(5.0)
    assert sum_bytes(None) == sum_bytes(1.05)
    assert sum_bytes(0.0, zipf=5.0) == sum_bytes(5.0)


def test_facts_keep_tables_and_drop_impossible_ones() -> None:
    facts = CaptureFacts("l4", 0, 0, 0, 0, False, tables=(TableSpec(2, 7, 8, 1.5, 0.3),))
    noted = json.loads(json.dumps(facts.to_dict()))
    assert CaptureFacts.from_metadata({FACTS_KEY: noted}) == facts
    noted["tables"][0]["rows"] = 0
    assert CaptureFacts.from_metadata({FACTS_KEY: noted}) is None


def test_cross_layers_keep_the_width(capture_step: Capture) -> None:
    step = capture_step(interaction="dcn", cross_layers=2, cross_rank=5, options=CaptureOptions())
    assert list_shapes(step, "aten::mm") == [[[64, 64], [64, 5]]] * 2
    assert [dims[1:3] for dims in list_shapes(step, "aten::addmm")][2:4] == [[[64, 5], [5, 64]]] * 2
    assert [dims[1] for dims in list_shapes(step, "aten::addmm")][4] == [64, 64]
    assert list_shapes(step, "aten::sigmoid") == [[[64, 1]]]


def test_without_dense_features_only_tables_interact(capture_step: Capture) -> None:
    step = capture_step(dense_features=0, options=CaptureOptions())
    assert list_shapes(step, "aten::bmm") == [[[64, 3, 16], [64, 16, 3]]]
    assert list_shapes(step, "aten::addmm")[0][1] == [64, 3]


def test_the_batch_scales_look_ups(capture_step: Capture) -> None:
    step = capture_step(batch=10)
    assert [dims[1:3] for dims in list_shapes(step, "aten::_embedding_bag")] == [
        [[25], [10]],
        [[25], [10]],
        [[10], [10]],
    ]
    assert (step.facts.batch, step.facts.tokens) == (10, 0)
    assert capture_step().facts.batch == 64


def test_options_replace_tables_and_layers(capture_step: Capture) -> None:
    options = CaptureOptions(table=("2*7x8:3",), bottom_mlp="4,8", top_mlp="2,1")
    step = capture_step(options=options)
    assert [dims[:2] for dims in list_shapes(step, "aten::_embedding_bag")] == [[[7, 8], [192]]] * 2
    assert [dims[2] for dims in list_shapes(step, "aten::addmm")] == [[4, 4], [4, 8], [8 + 3, 2], [2, 1]]


@pytest.mark.parametrize(
    ("options", "code"),
    [(CaptureOptions(seq=8), "dlrm-without-tokens"), (CaptureOptions(table=("7x8",)), "dlrm-widths-differ")],
)
def test_options_that_do_not_fit_are_refused(capture_step: Capture, options: CaptureOptions, code: str) -> None:
    with pytest.raises(TracekitError, check=has_code(code)):
        capture_step(options=options)


@pytest.mark.parametrize("options", [{"table": ("7x8",)}, {"bottom_mlp": "4,8"}, {"top_mlp": "1"}])
def test_other_programs_have_no_tables_to_replace(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}')
    with pytest.raises(RequestError, check=has_code("dlrm-options")):
        NamedProgram(str(path), CaptureOptions(**options)).capture_batch(None)


def test_a_dlrm_has_no_longest_sequence(tmp_path: Path) -> None:
    path = tmp_path / "dlrm.json"
    path.write_text(json.dumps(CONFIG))
    with pytest.raises(RequestError, check=has_code("dlrm-longest")):
        predict_steps(NamedProgram(str(path), CaptureOptions()), ["l4"], None, cuda_graph=False, longest=True)


def test_parameters_that_are_not_trained_have_no_states() -> None:
    from tracekit.capturing.program import capture

    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        model[0].requires_grad_(requires_grad=False)
        step = capture(model, torch.zeros(8, 64), training=True, optimizer="fused-adam")
    (updated,) = (call for call in step.calls if "_fused_adam_" in call.op)
    assert updated.dims[0] == [[64, 64], [64]]
    trained_bytes, input_bytes = 64 * 64 * 4 + 512, 8 * 64 * 4
    assert step.facts.held_bytes == 2 * trained_bytes + input_bytes + 2 * trained_bytes


def test_python_takes_the_name_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "dlrm.json"
    path.write_text(json.dumps(CONFIG))
    facts = tk.capture(str(path), training=True, optimizer="sgd", batch=16).rank().capture_facts
    assert facts is not None
    assert (facts.batch, facts.trains, facts.tables) == (16, True, parse().tables)


@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm"])
def test_a_configuration_tells_what_a_recorded_step_took(gpu: str, tmp_path: Path) -> None:
    """The job of sample_traces/workloads/recommender.py: its kernels take 7.45 ms on the H100, 6.80 on the H200."""
    path = tmp_path / "dlrm.json"
    sizes = {"tables": ["26*100000x64:4"], "dense_features": 13, "bottom_mlp": [256, 64], "top_mlp": [512, 1]}
    path.write_text(json.dumps(CONFIG | sizes | {"batch_size": 8192, "sparse_gradients": False}))
    options = CaptureOptions(train=True, optimizer="fused-adamw", cuda_graph=True)
    (step,) = predict_steps(NamedProgram(str(path), options), [gpu], None, cuda_graph=True)
    run = prepare_run(tk.load(RECORDED / f"{gpu}_dlrm_train.json.gz"))
    measured_us = run.kernels.filter(run.is_in_chosen_steps)["dur_ns"].sum() / 1e3
    assert step.prediction.kernels["time_us"].sum() == pytest.approx(measured_us, rel=0.1)


LARGE = {"tables": ["4*1Mx64:10"], "bottom_mlp": [512, 64], "top_mlp": [512, 1], "batch_size": 16_384}


@pytest.mark.parametrize(
    "kind", [{}, {"lookup": "fbgemm", "table_optimizer": "rowwise_adagrad"}, {"sparse_gradients": False}]
)
@pytest.mark.parametrize("change", [{"table": "4Mx64:20"}, {"batch": 4}])
def test_a_captured_step_changes_as_its_configuration(
    kind: dict[str, Any], change: dict[str, Any], tmp_path: Path
) -> None:
    """Tables and batch of the trace, by its ops' shapes, and the same captured anew."""
    path = tmp_path / "dlrm.json"
    path.write_text(json.dumps(CONFIG | LARGE | kind))
    options = CaptureOptions(train=True, optimizer="fused-adam", cuda_graph=True)
    trace, _ = capture_named(str(path), options, None)
    table = (f"4*{change['table']}",) if "table" in change else ()
    anew, _ = capture_named(str(path), replace(options, table=table), 16_384 * change.get("batch", 1))
    edits = [f"tables({change['table']})"] if "table" in change else []
    changed = tk.predict(trace, gpu="h100-sxm", what_if=edits, batch=change.get("batch")).targets[0]
    direct = tk.predict(anew, gpu="h100-sxm").targets[0]
    assert changed.step.step_time_us == pytest.approx(direct.step.step_time_us, rel=0.03)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rows", "width", "count"]), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_values_are_taken_or_refused(given_values: dict[str, Any]) -> None:
    text = json.dumps(CONFIG | given_values | {"model_type": "dlrm"}).encode()
    try:
        found = parse_dlrm_config(text, "dlrm.json")
    except ModelConfigError:
        return
    assert found is not None
    assert found.tables


def test_commands_take_a_dlrm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracekit.cli.app import main

    path = tmp_path / "dlrm.json"
    path.write_text(json.dumps(CONFIG))

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["tracekit", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return int(str(stop.value.code)), captured.out + captured.err

    code, shown = run("predict", str(path), "--gpu", "l4", "--batch", "128", "--table", "3*9x16:2", "--json")
    answer = json.loads(shown[: shown.rindex("}") + 1])
    assert (code, answer["source"]["batch"]["size"]) == (0, 128)
    code, shown = run("predict", str(path), "--gpu", "l4", "--table", "9by16")
    assert (code, shown.count("\n"), "[table-malformed]" in shown) == (2, 1, True)
    out = tmp_path / "step.json"
    assert run("capture", str(path), "--gpu", "l4", "-o", str(out))[0] == 0
    code, shown = run("info", str(out))
    assert code == 0
    assert "3 embedding tables, rows of 16" in shown


def test_a_cross_layer_adds_its_input() -> None:
    """Of x = (1, 2): with matrices of ones and a bias of 0.5, x * 3.5 + x = 4.5 x; without the residual 3.5 x."""
    cross = CrossInteraction(2, layers=1, rank=1)
    for weight, value in ((cross.narrow[0].weight, 1.0), (cross.wide[0].weight, 1.0), (cross.wide[0].bias, 0.5)):
        torch.nn.init.constant_(weight, value)
    assert cross([torch.tensor([[1.0]]), torch.tensor([[2.0]])]).tolist() == [[4.5, 9.0]]


def test_only_the_last_layer_of_a_model_has_no_relu() -> None:
    config = parse()
    model = Dlrm(config, 64)
    bottom, top = ([type(one).__name__ for one in layers] for layers in (model.bottom, model.top))
    assert bottom == ["Linear", "ReLU"] * 2
    assert top == ["Linear", "ReLU", "Linear"]
