"""Chakra's execution traces: dependencies are CUDA's, times are the replay's."""

import json
import sys
from itertools import pairwise

import polars as pl
import pytest

from tests.codes import has_code
from tests.graph.test_occupancy import LARGE, two_streams
from tests.jobs import job, recorded
from tracekit.errors import OutputError
from tracekit.export.chakra.encode import compute_comm_sizes
from tracekit.ingest.formats.chakra import NodeType, load_messages
from tracekit.request import ExportRequest, answers
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

GATHER = {
    "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 1000, "Out msg nelems": 8000,
    "Group size": 8, "Process Group Name": "1", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}  # fmt: skip
LATENCIES_US = 30
"""Of two steps: from launches to kernels, and between kernels, which the nodes don't have."""


def three_steps():
    """Steps of 1000: two GEMMs of 300 on one stream, an all-gather of 50 on another, and a wait for the GPU."""
    builder = TraceBuilder()
    for number in range(3):
        at = 1000 * number
        builder.step(number, at, 1000).op("aten::mm", at + 1, 40, dims=[[64, 64], [64, 64]])
        for place in (0, 1):
            builder.kernel("ampere_sgemm_64x64", at + 20 + 301 * place, 300, launch=at + 5 + 10 * place)
        builder.op("record_param_comms", at + 45, 10)
        builder.kernel("ncclDevKernel_AllGather", at + 60, 50, launch=at + 47, stream=20, **GATHER)
        builder.call("cudaDeviceSynchronize", at + 60, 570)
    return builder


def read_nodes(content):
    """Return the nodes of a file by id."""
    nodes, at = {}, 0
    messages = load_messages()
    kind = messages["GlobalMetadata"]
    while at < len(content):
        size = shift = 0
        while True:
            byte = content[at]
            at, size, shift = at + 1, size | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        message = kind.FromString(content[at : at + size])
        at += size
        if kind is messages["Node"]:
            nodes[message.id] = message
        kind = messages["Node"]
    return nodes


def compute_ends(nodes):
    """Return the end of each node, when each starts as soon as it may; dependencies must point back."""
    ends = {}
    for number, node in nodes.items():
        ends[number] = max((ends[other] for other in node.data_deps), default=0) + node.duration_micros
    return ends


def list_ancestors(nodes, number):
    found, todo = set(), [number]
    while todo:
        new = set(nodes[todo.pop()].data_deps) - found
        found |= new
        todo += new
    return found


def read_attributes(node):
    found = {}
    for one in node.attr:
        ((kind, value),) = ((field.name, value) for field, value in one.ListFields() if field.name != "name")
        found[one.name] = list(value.values) if kind == "int64_list" else value
    return found


@pytest.fixture(scope="module")
def run():
    return prepare_run(three_steps().load())


@pytest.fixture(scope="module")
def nodes(run):
    files, _ = answers.export_execution_traces(run, ExportRequest())
    assert list(files) == ["rank.0.et", "comm_groups.json"]
    return read_nodes(files["rank.0.et"])


def test_the_longest_path_is_the_replayed_step(run, nodes):
    longest = max(compute_ends(nodes).values())
    assert run.chosen_steps["step"].to_list() == [1, 2]
    # From the first launch of step 1, at 1005, to the end of the last wait, at 2630.
    assert longest == pytest.approx(1625, abs=LATENCIES_US)


def test_a_kernel_follows_its_launch_and_its_stream(nodes):
    gemms = [node for node in nodes.values() if node.name == "ampere_sgemm_64x64"]
    assert [node.duration_micros for node in gemms] == [300] * 4
    for before, node in pairwise(gemms):
        names = {nodes[other].name for other in node.data_deps}
        assert "cudaLaunchKernel" in names
        assert before.id in list_ancestors(nodes, node.id)
    end = next(node for node in nodes.values() if node.name == "cudaDeviceSynchronize returns")
    awaited = {nodes[other].name for other in list_ancestors(nodes, end.id)}
    assert awaited >= {"ampere_sgemm_64x64", "ncclDevKernel_AllGather", "cudaDeviceSynchronize"}


def test_a_kernel_follows_one_that_leaves_no_room():
    builder = two_streams().kernel("large", 104, 1000, launch=100, **LARGE)
    builder.kernel("small", 1099, 10, launch=200, stream=9)
    files, _ = answers.export_execution_traces(prepare_run(builder.load()), ExportRequest())
    nodes = read_nodes(files["rank.0.et"])
    (small,) = (node for node in nodes.values() if node.name == "small")
    assert "large" in {nodes[other].name for other in small.data_deps}


def test_a_collective_has_what_a_simulator_sends(nodes):
    gather, _ = (node for node in nodes.values() if node.type == NodeType.COMM_COLL)
    noted = read_attributes(gather)
    assert noted["comm_type"] == 2
    assert noted["comm_size"] == 2_000  # Its own part, as Chakra's converter counts it.
    assert noted["pg_name"] == "1"
    assert noted["pg_ranks"] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert not noted["is_cpu_op"]


def test_a_gather_is_sized_by_what_a_rank_puts_in():
    """torch.distributed's inputs of a gather are a rank's own, which its size counts; an all-gather's counts all."""
    rows = pl.DataFrame({"collective": ["gather", "all_gather"], "bytes": 4096, "ranks": 4, "rank": 0})
    assert compute_comm_sizes(rows).to_list() == [4096, 1024]


def test_the_predicted_step_has_the_predicted_times(run):
    request = ExportRequest(gpu=["h100-sxm"])
    files, predicted = answers.export_execution_traces(run, request)
    assert files == answers.export_execution_traces(run, request)[0]
    gemms = [node for node in read_nodes(files["rank.0.et"]).values() if node.name == "ampere_sgemm_64x64"]
    target = predicted.targets[0]
    times = target.replayed_kernels.filter(target.program.is_in_chosen_steps & (run.kernels["family"] == "gemm"))
    assert [node.duration_micros for node in gemms] == pytest.approx(times["time_us"].to_list(), abs=1)


def test_ranks_begin_apart_and_send_alike_in_numbered_groups():
    def rank(start, nelems):
        noted = recorded("all_to_all", nelems, name="5e8f2a")
        return (
            TraceBuilder()
            .step(0, start, 500 - start)
            .kernel("gemm", start + 10, 100, launch=start + 1)
            .kernel("ncclDevKernel_SendRecv", start + 130, 400 - start - 130, launch=start + 20, stream=9, **noted)
        )

    files, _ = answers.export_execution_traces(prepare_run(job(rank(0, 100), rank(60, 300))), ExportRequest())
    assert json.loads(files.pop("comm_groups.json")) == {"1": [0, 1]}
    first, second = (read_nodes(content) for content in files.values())
    assert first[1].name == "cudaLaunchKernel"
    assert (second[1].name, second[1].duration_micros) == ("before the first dependency", 60)
    for nodes in (first, second):
        (exchange,) = (read_attributes(node) for node in nodes.values() if node.type == NodeType.COMM_COLL)
        # ASTRA-sim waits for ever where the sizes of two ranks differ, and wants a number as the group's name.
        assert (exchange["comm_size"], exchange["pg_name"]) == (1200, "1")


def test_one_rank_s_message_is_the_other_s():
    noted = {"Dst Rank": 1, "Src Rank": 0}
    ranks = [
        TraceBuilder().kernel("ncclDevKernel_SendRecv", 10, 50, launch=1, **recorded("send") | noted) for _ in "01"
    ]
    files, _ = answers.export_execution_traces(prepare_run(job(*ranks)), ExportRequest())
    found = [next(node for node in read_nodes(data).values() if node.type != NodeType.COMP) for data in files.values()]
    assert [node.type for node in found] == [NodeType.COMM_SEND, NodeType.COMM_RECV]
    common = {"comm_tag": 0, "comm_size": 4000}
    for node, peer in zip(found, ({"comm_dst": 1}, {"comm_src": 0}), strict=True):
        assert read_attributes(node) | common | peer == read_attributes(node)


def test_a_rank_alone_sends_nothing():
    builder = TraceBuilder().kernel("ncclDevKernel_AllGather", 10, 50, launch=1, **recorded(ranks="[0]"))
    files, _ = answers.export_execution_traces(prepare_run(job(builder)), ExportRequest())
    assert {node.type for node in read_nodes(files["rank.0.et"]).values()} == {NodeType.COMP}


def test_a_copy_does_not_wait_for_the_call_that_waits_for_it():
    copy = {"call": "cudaMemcpyAsync", "kind": "gpu_memcpy", "bytes": 400}
    builder = TraceBuilder().kernel("gemm", 20, 89, launch=2)
    builder.kernel("Memcpy DtoH (Device -> Pageable)", 110, 10, launch=100, launch_dur=200, **copy)
    files, _ = answers.export_execution_traces(prepare_run(builder.load()), ExportRequest())
    nodes = read_nodes(files["rank.0.et"])
    ends = {nodes[number].name: end for number, end in compute_ends(nodes).items()}
    assert ends["Memcpy DtoH (Device -> Pageable)"] == pytest.approx(120, abs=LATENCIES_US)
    assert ends["cudaMemcpyAsync returns"] == pytest.approx(300, abs=LATENCIES_US)


def test_a_kernel_does_not_wait_for_the_rest_of_its_launch():
    builder = TraceBuilder().kernel("early", 30, 10, launch=10, launch_dur=90, call="cudaLaunchKernelExC")
    files, _ = answers.export_execution_traces(prepare_run(builder.load()), ExportRequest())
    nodes = {node.name: node for node in read_nodes(files["rank.0.et"]).values()}
    call, rest = nodes["cudaLaunchKernelExC"], nodes["host work"]
    assert nodes["early"].data_deps[:] == [call.id] == rest.data_deps[:]
    assert call.start_time_micros + call.duration_micros == nodes["early"].start_time_micros
    assert call.duration_micros + rest.duration_micros == 90


# 0.3 us are 0 whole microseconds, and a node of none has no work.
def test_no_kernel_takes_no_time():
    builder = TraceBuilder().kernel("short", 30.1, 0.3, launch=10).kernel("whole", 40, 5, launch=20)
    files, _ = answers.export_execution_traces(prepare_run(builder.load()), ExportRequest())
    durations = {node.name: node.duration_micros for node in read_nodes(files["rank.0.et"]).values()}
    assert (durations["short"], durations["whole"]) == (1, 5)


def test_two_targets_are_refused(run):
    with pytest.raises(OutputError, check=has_code("chakra-of-one-target")):
        answers.export_execution_traces(run, ExportRequest(gpu=["h100-sxm", "b200"]))


def test_without_protobuf_the_package_is_named(run, monkeypatch):
    load_messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(OutputError, check=has_code("chakra-needs-package")):
        answers.export_execution_traces(run, ExportRequest())
