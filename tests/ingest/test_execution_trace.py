import gzip
import json
import os
from pathlib import Path

import polars as pl
import pytest

from tests.codes import has_code
from tracekit.errors import DamagedTraceError, NotATraceError, TraceError
from tracekit.ingest import load_bytes
from tracekit.ingest.execution_trace import is_execution_trace, join_execution_trace
from tracekit.messages.traces import EXECUTION_TRACE_JOINED
from tracekit.testing import PROCESS, TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

MM = dict(
    values=[[5, 6, 0, 2048, 4, "cuda:0"], [7, 8, 0, 512, 4, "cuda:0"], 1, True],
    shapes=[[64, 32], [32, 16], [], []],
    types=["Tensor(float)", "Tensor(float)", "Int", "Bool"],
)
CAT = dict(
    values=[[[5, 6, 0, 8, 4, "cuda:0"], [7, 8, 0, 16, 4, "cuda:0"]], 0, [1, -1], "<None>"],
    shapes=[[[8], [16]], [], [[], []], []],
    types=["GenericList[Tensor(c10::Half),Tensor(c10::Half)]", "Int", "GenericList[Int,Int]", "None"],
)
ALL_REDUCE = dict(
    values=[[[9, 6, 0, 1000, 4, "cuda:0"], [10, 6, 0, 24, 4, "cuda:0"]], 5, 12345, 0, "allreduce", [], []],
    shapes=[[[1000], [24]], [], [], [], [], [], []],
    types=["GenericList[Tensor(float),Tensor(float)]", "Int", "Int", "Int", "String", "GenericList[]", "GenericList[]"],
)
ALL_TO_ALL = dict(
    values=[[9, 6, 0, 80, 8, "cuda:0"], 6, 12345, 0, "all_to_allv", [20, 60], [40, 40]],
    shapes=[[80], [], [], [], [], [[], []], [[], []]],
    types=["Tensor(long int)", "Int", "Int", "Int", "String", "GenericList[Int,Int]", "GenericList[Int,Int]"],
)
SENT = {"External id": 1}


class Observer:
    """Writes execution traces in both forms."""

    def __init__(self, schema="1.0.1", pid=PROCESS):
        self.document = {"schema": schema, "pid": pid, "time": "2024-01-01", "start_ts": 1, "nodes": []}
        self.nested = "chakra" in schema
        self.node("[pytorch|profiler|execution_trace|thread]", 0, scope=7)

    def node(self, name, rf_id, inputs=None, outputs=None, thread=1, scope=0, **attrs):
        inputs, outputs = inputs or dict(values=[], shapes=[], types=[]), outputs or []
        facts = {"rf_id": rf_id, "scope": scope, "tid": thread}
        if self.nested:
            entries = [{"name": key, "type": "uint64", "value": value} for key, value in (facts | attrs).items()]
            node = {"inputs": inputs, "outputs": {"values": outputs, "shapes": [], "types": []}, "attrs": entries}
        else:
            shapes = {"input_shapes": inputs["shapes"], "input_types": inputs["types"]}
            node = facts | {"inputs": inputs["values"], **shapes, "outputs": outputs}
        self.document["nodes"].append({"name": name, "id": len(self.document["nodes"]) + 2} | node)
        return self

    def to_json(self):
        return json.dumps(self.document).encode()


def with_ids(**ids):
    """A trace of three ops, each with a kernel, whose record function ids are given."""
    builder = TraceBuilder()
    for number, (name, rf_id) in enumerate(ids.items()):
        start = 100 * number
        args = {} if rf_id is None else {"Record function id": rf_id}
        builder.op(name.replace("__", "::"), start, 50, **args)
        builder.kernel("ncclKernel_AllReduce" if "comms" in name else "ampere_sgemm", start + 60, 30, launch=start + 10)
    return builder.load().ranks[0]


@pytest.fixture
def trace():
    return with_ids(aten__mm=11, aten__cat=12, record_param_comms=13)


@pytest.fixture(params=["1.0.1", "1.1.1-chakra.0.0.4"])
def observer(request):
    return Observer(request.param).node("aten::mm", 11, MM).node("aten::cat", 12, CAT)


def test_shapes_and_types_are_written_as_the_profiler_writes_them(trace, observer):
    joined = join_execution_trace(trace, observer.to_json(), "x.et.json.gz")
    mm, cat, _ = joined.ops.iter_rows(named=True)
    assert mm["input_dims"] == "[[64,32],[32,16],[],[]]"
    assert mm["input_types"] == '["float","float","Scalar","Scalar"]'
    assert mm["concrete_inputs"] == '["","","1","True"]'
    assert cat["input_dims"] == "[[[8],[16]],[],[],[]]"
    assert cat["input_types"] == '["TensorList","Scalar","ScalarList",""]'
    assert cat["concrete_inputs"] == '["","0","[1,-1]",""]'
    assert joined.warnings == (EXECUTION_TRACE_JOINED(ops=2, collectives=0, path="x.et.json.gz"),)
    assert joined.has_shapes
    assert joined.ops.schema == trace.ops.schema
    assert build_kernel_table(joined)["m"][0] == 64


def test_a_collective_of_an_old_trace_gets_its_size_and_its_group_from_the_splits(trace):
    observer = Observer().node("record_param_comms", 13, ALL_REDUCE, [[[9, 6, 0, 1000, 4, ""], [10, 6, 0, 24, 4, ""]]])
    observer.node("record_param_comms", 14, ALL_TO_ALL, [[9, 6, 0, 80, 8, "cuda:0"]])
    joined = join_execution_trace(trace, observer.to_json(), "x")
    row = joined.ops.row(2, named=True)
    assert (row["collective"], row["collective_dtype"], row["in_nelems"], row["out_nelems"], row["group_size"]) == (
        "allreduce", "Float", 1024, 1024, 2,
    )  # fmt: skip
    kernel = build_kernel_table(joined).row(2, named=True)
    assert (kernel["collective"], kernel["bytes"], kernel["ranks"]) == ("all_reduce", 4096, 2)


def test_a_collective_of_a_new_trace_has_its_size_among_the_attributes(trace):
    attrs = dict(
        collective_name="_allgather_base", dtype="BFloat16", in_msg_nelems=8, out_msg_nelems=64, pg_size=8, pg_name="3"
    )
    observer = Observer("1.1.1-chakra.0.0.4").node("record_param_comms", 13, **attrs)
    row = join_execution_trace(trace, observer.to_json(), "x").ops.row(2, named=True)
    assert (row["collective"], row["collective_dtype"], row["in_nelems"], row["out_nelems"]) == (
        "_allgather_base", "BFloat16", 8, 64,
    )  # fmt: skip
    assert (row["group_size"], row["process_group"]) == (8, "3")


def test_what_the_trace_recorded_stays(observer):
    own = TraceBuilder().op("aten::mm", 0, 9, dims=[[1, 2], [2, 3]], **{"Record function id": 11}).kernel("k", 9, 9)
    joined = join_execution_trace(own.load().ranks[0], observer.to_json(), "x")
    assert joined.ops["input_dims"].to_list() == ["[[1,2],[2,3]]"]
    assert joined.warnings[-1] == EXECUTION_TRACE_JOINED(ops=0, collectives=0, path="x")


def test_shapes_in_a_list_are_filled_in_where_the_profiler_left_them_out(observer):
    args = {"Record function id": 12}
    own = TraceBuilder().op("aten::cat", 0, 9, dims=[[], [], [], []], types=["TensorList", "Scalar", "", ""], **args)
    joined = join_execution_trace(own.kernel("k", 9, 9).load().ranks[0], observer.to_json(), "x")
    assert joined.ops["input_dims"].to_list() == ["[[[8],[16]],[],[],[]]"]


def old_trace(dims=((64, 32), (32, 16), (), ())):
    """Of a PyTorch that doesn't write ids; ops start at one microsecond on two threads."""
    builder = TraceBuilder().step(1, 0, 99)
    builder.op("aten::mm", 0, 9, dims=dims, types=["float", "float", "Scalar", "Scalar"])
    builder.op("record_param_comms", 9, 9, thread=7)
    return builder.kernel("ncclKernel_AllReduce", 20, 10, launch=12, thread=7).load().ranks[0]


def old_observer(**kwargs):
    observer = Observer(**kwargs).node("## forward ##", 1, scope=7).node("aten::mm", 2, MM)
    return observer.node("record_param_comms", 3, ALL_TO_ALL, [[9, 6, 0, 80, 8, ""]], thread=2)


def test_without_ids_ops_are_joined_if_they_are_the_same_in_the_same_order():
    joined = join_execution_trace(old_trace(), old_observer().to_json(), "x")
    assert joined.ops["record_function_id"].to_list() == [2, 3]
    assert joined.ops["in_nelems"].to_list() == [None, 80]
    assert build_kernel_table(joined)["bytes"].to_list() == [640]


@pytest.mark.parametrize(
    ("rank", "observer", "code"),
    [
        (old_trace(), old_observer().node("aten::mm", 4, MM), "without-ids"),
        (old_trace(), old_observer().node("aten::mm", 2, MM, thread=3), "without-ids"),
        (with_ids(aten__mm=None), Observer().node("aten::mm", 2, MM), "without-ids"),
        (old_trace(dims=((8, 32), (32, 16), (), ())), old_observer(), "shapes-differ"),
        (old_trace(), old_observer(pid=4711), "of-other-process"),
        (with_ids(aten__mm=0, aten__cat=0), Observer().node("aten::mm", 2, MM), "without-ids"),
        (with_ids(aten__mm=11), Observer().node("aten::mm", 12, MM), "without-common-ids"),
        (with_ids(aten__mm=11), Observer().node("aten::add", 11, MM), "ops-differ"),
        (with_ids(aten__mm=11), Observer(), "without-common-ids"),
        (TraceBuilder().kernel("k", 1, 1).load().ranks[0], Observer(), "without-ops"),
    ],
)
def test_what_is_not_of_this_rank_and_run_is_refused_in_one_line(rank, observer, code):
    with pytest.raises(TraceError, check=has_code(f"execution-trace-{code}")) as refused:
        join_execution_trace(rank, observer.to_json(), "other.et.json")
    assert "\n" not in str(refused.value)
    assert "other.et.json" in str(refused.value)


def broken_node(**changes):
    document = json.loads(Observer().node("aten::mm", 11, MM).to_json())
    document["nodes"][-1] |= changes
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", DamagedTraceError),
        (b"\xff\xfe{", DamagedTraceError),
        (Observer().to_json()[:-30], DamagedTraceError),
        (b'{"schema": "1.0.1", "nodes": [{"inputs": ' + b"[" * 100_000, DamagedTraceError),
        (b"[1, 2]", NotATraceError),
        (b'{"traceEvents": []}', NotATraceError),
        (b'{"schema": "1.0.1", "nodes": 5}', NotATraceError),
        (b'{"schema": "2.0.0", "pid": 1, "nodes": []}', NotATraceError),
        (broken_node(rf_id="eleven"), NotATraceError),
        (broken_node(rf_id=2**70), NotATraceError),
        (broken_node(input_types=["Int"]), NotATraceError),
        (broken_node(inputs={"values": 3}), NotATraceError),
        (broken_node(attrs=[{"name": "rf_id", "value": [1]}]), NotATraceError),
        (broken_node(name="record_param_comms", inputs=[[1]] * 7, input_shapes=[[]] * 7,
                     input_types=ALL_TO_ALL["types"]), NotATraceError),
    ],
)  # fmt: skip
def test_what_is_no_execution_trace_is_refused_in_one_line(trace, data, error):
    with pytest.raises(error, match=r"^x\.json is no") as refused:
        join_execution_trace(trace, data, "x.json")
    assert "\n" not in str(refused.value)


def test_execution_traces_are_told_from_profiler_traces(observer):
    assert is_execution_trace(observer.to_json()[:200])
    assert is_execution_trace(b' {\n"schema" : "1.0.1",\n "pid": 1')
    assert not is_execution_trace(TraceBuilder().to_json()[:200])
    assert not is_execution_trace(b"")
    assert not is_execution_trace(b'{"schemaVersion": 1, "deviceProperties": []')


@pytest.mark.skipif("TRACEKIT_REAL_TRACES" not in os.environ, reason="needs the public traces")
@pytest.mark.parametrize("number", [0, 7])
def test_every_collective_of_the_public_dlrm_traces_gets_its_size(number):
    folder = Path(os.environ["TRACEKIT_REAL_TRACES"])
    stem = folder / f"v100_dlrm_train_rank{number}_of_8"
    (rank,) = load_bytes(gzip.decompress(Path(f"{stem}.json.gz").read_bytes()), "the trace").ranks
    assert rank.ops["in_nelems"].count() == 0
    other = folder / f"v100_dlrm_train_rank{(number + 1) % 8}_of_8.et.json.gz"
    joined = join_execution_trace(rank, gzip.decompress(Path(f"{stem}.et.json.gz").read_bytes()), "its own")
    kernels = build_kernel_table(joined).filter(pl.col("family") == "collective")
    assert kernels["bytes"].to_list() == [24576, 192, 1536, 13568, 1576964, 24576, 448, 907840]
    assert set(kernels["ranks"]) == {8}
    with pytest.raises(TraceError, check=has_code("execution-trace-of-other-process")):
        join_execution_trace(rank, gzip.decompress(other.read_bytes()), "another rank's")
