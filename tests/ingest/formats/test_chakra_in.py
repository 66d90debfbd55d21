"""Chakra's execution traces, as tracekit writes them and as others do, without times."""

import pytest

import tracekit as tk
from tests.codes import has_code
from tests.export.test_chakra import three_steps
from tracekit.errors import DamagedTraceError, NoGpuActivityError
from tracekit.ingest.formats.chakra import NodeType, load_messages
from tracekit.request import ExportRequest, answers
from tracekit.run import prepare_run


def delimit(message):
    text = message.SerializeToString()
    assert len(text) < 1 << 14
    return (bytes([len(text) & 0x7F | 0x80, len(text) >> 7]) if len(text) > 0x7F else bytes([len(text)])) + text


def write(path, *nodes):
    """Write nodes given as ``(id, name, type, duration in us, dependencies, attributes)``."""
    classes = load_messages()
    content = [delimit(classes["GlobalMetadata"](version="0.0.4"))]
    for number, name, kind, dur, deps, notes in nodes:
        node = classes["Node"](id=number, name=name, type=kind, duration_micros=dur, data_deps=deps)
        for key, value in notes.items():
            node.attr.add(name=key, **{"bool_val" if isinstance(value, bool) else "int64_val": value})
        content.append(delimit(node))
    path.write_bytes(b"".join(content))
    return path


def test_what_is_written_is_read_again(tmp_path):
    run = prepare_run(three_steps().load())
    path = tmp_path / "rank.3.et"
    path.write_bytes(answers.export_execution_traces(run, ExportRequest())[0]["rank.0.et"])
    trace = tk.load(path)
    there, here = run.kernels.filter(run.program.is_in_chosen_steps), prepare_run(trace).kernels
    assert trace.ranks[0].rank == 3
    assert here["dur_ns"].to_list() == pytest.approx(there["dur_ns"].to_list(), abs=1000)
    for column in ("name", "stream", "op", "family", "m", "collective", "bytes", "process_group"):
        assert here[column].to_list() == there[column].to_list(), column
    assert here["call"].null_count() == 0


def test_starts_are_in_microseconds(tmp_path):
    """Two kernels of 100 us, 900 us apart."""
    classes = load_messages()
    content = [delimit(classes["GlobalMetadata"](version="0.0.4"))]
    for number, start in ((1, 100), (2, 1100)):
        node = classes["Node"](id=number, name="gemm", type=NodeType.COMP, start_time_micros=start, duration_micros=100)
        node.attr.add(name="is_cpu_op", bool_val=False)
        content.append(delimit(node))
    path = tmp_path / "workload.et"
    path.write_bytes(b"".join(content))
    found = tk.load(path).ranks[0].activities
    assert found["ts_ns"].diff().to_list()[1:] == [1_000_000]
    assert found["dur_ns"].to_list() == [100_000, 100_000]


def test_nodes_without_times_run_as_simulators_run_them(tmp_path):
    gpu = {"is_cpu_op": False}
    path = write(
        tmp_path / "workload.et",
        (1, "aten::mm", NodeType.COMP, 10, [], {"is_cpu_op": True, "tid": 5}),
        (2, "gemm", NodeType.COMP, 100, [1], gpu | {"stream": 7}),
        (3, "layer_grad", NodeType.COMM_COLL, 50, [2], gpu | {"stream": 9, "comm_type": 0, "comm_size": 4096}),
        (4, "gemm", NodeType.COMP, 100, [1], gpu | {"stream": 7}),
    )
    rank = tk.load(path).ranks[0]
    assert (rank.activities["ts_ns"] // 1000 - 1).to_list() == [10, 110, 110]
    assert rank.activities["stream"].sort().to_list() == [7, 7, 9]
    run = prepare_run(tk.load(path))
    (reduce,) = run.kernels.filter(family="collective").iter_rows(named=True)
    assert (reduce["collective"], reduce["bytes"]) == ("all_reduce", 4096)
    assert run.program.graph.recorded_waits == 1
    assert run.kernels["op"].to_list()[0] == "aten::mm"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0, "all_reduce"), (1, "reduce"), (2, "all_gather"), (3, "gather"), (4, "scatter"), (5, "broadcast"),
        (6, "all_to_all"), (7, "reduce_scatter"), (8, "reduce_scatter"), (9, "barrier"), (10, None), (None, None),
    ],
)  # fmt: skip
def test_collectives_are_of_their_kind_and_no_messages(tmp_path, number, kind):
    gpu = {"is_cpu_op": False, "stream": 7}
    sent = gpu | {"comm_size": 4096} | ({} if number is None else {"comm_type": number})
    path = write(
        tmp_path / "workload.et",
        (1, "aten::mm", NodeType.COMP, 10, [], {"is_cpu_op": True}),
        (2, "gemm", NodeType.COMP, 100, [1], gpu),
        (3, "layer_grad", NodeType.COMM_COLL, 50, [2], sent),
    )
    (found,) = prepare_run(tk.load(path)).kernels.filter(family="collective").iter_rows(named=True)
    assert (found["collective"], found["bytes"]) == (kind, 4096)


def test_the_jsonizer_s_form_reads_alike(tmp_path):
    encoded = write(
        tmp_path / "a.et",
        (1, "aten::mm", NodeType.COMP, 10, [], {"is_cpu_op": True}),
        (2, "gemm", NodeType.COMP, 100, [1], {"is_cpu_op": False, "stream": 7}),
    )
    printed = tmp_path / "a.json"
    printed.write_text(
        """{
  "version": "0.0.4"
}{
  "id": "1", "name": "aten::mm", "type": "COMP_NODE", "durationMicros": "10",
  "attr": [{"name": "is_cpu_op", "boolVal": true}]
}{
  "id": "2", "name": "gemm", "type": "COMP_NODE", "dataDeps": ["1"], "durationMicros": "100",
  "attr": [{"name": "is_cpu_op", "boolVal": false}, {"name": "stream", "int64Val": "7"}, {"name": "x", "bytesVal": ""}]
}"""
    )
    there, here = tk.load(encoded).ranks[0], tk.load(printed).ranks[0]
    assert there.activities.equals(here.activities)
    assert there.ops.equals(here.ops)


def test_a_circle_is_refused(tmp_path):
    path = write(tmp_path / "a.et", (1, "a", 4, 1, [2], {}), (2, "b", 4, 1, [1], {}))
    with pytest.raises(DamagedTraceError, check=has_code("chakra-circular")):
        tk.load(path)


def test_a_trace_of_the_host_is_refused(tmp_path):
    path = write(tmp_path / "a.et", (1, "a", 4, 1, [], {"is_cpu_op": True}))
    with pytest.raises(NoGpuActivityError, check=has_code("chakra-without-kernels")):
        tk.load(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: b"\x05" + data,
        lambda data: b"text, no trace",
        lambda data: b'{"version": "0.0.4"}{"id": "1", "type": "NO_NODE"}',
        lambda data: b'{"version": "0.0.4"}{"name": "1", "attr": 1}',
        lambda data: b'{"version": "0.0.4"}{"id": "1"',
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, damage):
    path = write(tmp_path / "a.et", (1, "a", 4, 1, [], {}))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedTraceError, check=has_code("format-damaged")):
        tk.load(path)
