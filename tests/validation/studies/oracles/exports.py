"""Exported predictions and traces in the hands of TraceLens, HTA and Chakra's own reader."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import tracekit as tk
from tests.validation.studies.oracles.peers import list_traces, measure_tracelens, open_tracelens, quiet, require
from tests.validation.studies.oracles.times import break_down, measure_union
from tests.validation.studies.reliability import run_here
from tests.validation.study import REAL_TRACES, format_table

INPUTS = (REAL_TRACES,)
TARGET = "h100-sxm"
KINETO = ("trace", "busy ms, read by tracekit", "by TraceLens", "by HTA")
CHAKRA = ("trace", "GPU activities", "nodes", "of the GPU", "missing or double", "in a circle")


def run() -> str:
    """Return both tables.

    Raises:
        MissingInputError: A tool isn't installed.
    """
    for package in ("TraceLens", "hta", "chakra"):
        require(package)
    with tempfile.TemporaryDirectory() as made:
        folder, paths = Path(made), list_traces()
        text = f"# Exports read by others\n\n`tracekit export TRACE --gpu {TARGET} --format kineto`: GPU busy time. "
        text += "HTA leaves out the last of several steps, and rounds starts up and ends down to microseconds.\n\n"
        text += format_table(KINETO, (read_kineto(path, folder) for path in paths))
        text += "\n`tracekit export TRACE --format chakra`, read by Chakra's own reader: nodes, those of the GPU, "
        text += "dependencies on nodes that are missing or ids that are there twice, nodes that wait in a circle. "
        text += "Steps that aren't measured, such as a warm-up, aren't exported.\n\n"
        return text + format_table(CHAKRA, (read_chakra(path, folder) for path in paths))


def export(path: Path, folder: Path, *arguments: str, suffix: str) -> Path:
    """Export a trace by the command line.

    Raises:
        ValueError: It is refused.
    """
    place = folder / f"{path.name.partition('.')[0]}{suffix}"
    code, _, said = run_here(["export", str(path), *arguments, "-q", "--force", "-o", str(place)])
    if code:
        raise ValueError(said.strip().replace("\n", " "))
    return place


def read_kineto(path: Path, folder: Path) -> tuple[str, ...]:
    """Return the row of a predicted step as a profiler's trace."""
    name = path.name.partition(".")[0]
    try:
        place = export(path, folder, "--gpu", TARGET, "--format", "kineto", suffix=".json.gz")
        busy_us, _ = measure_union(tk.load(place, cache=False).ranks[0].activities)
    except Exception as error:
        return name, f"none ({error})", "", ""
    return name, f"{busy_us / 1e3:.3f}", _read_with_tracelens(place), _read_with_hta(place, folder)


def _read_with_tracelens(place: Path) -> str:
    try:
        return f"{measure_tracelens(open_tracelens(place))['busy_time'] / 1e3:.3f}"
    except Exception as error:
        return f"none ({type(error).__name__})"


def _read_with_hta(place: Path, folder: Path) -> str:
    from hta.trace_analysis import TraceAnalysis

    try:
        with quiet():
            times = break_down(TraceAnalysis(trace_files={0: str(place)}, trace_dir=str(folder)))
    except Exception as error:
        return f"none ({type(error).__name__})"
    return f"{(times['compute_time(us)'] + times['non_compute_time(us)']) / 1e3:.3f}"


def read_chakra(path: Path, folder: Path) -> tuple[str, ...]:
    """Return the row of a trace as a Chakra execution trace."""
    name = path.name.partition(".")[0]
    try:
        place, *_ = export(path, folder, "--format", "chakra", suffix="_et").glob("*.et")
        nodes = read_nodes(place)
    except Exception as error:
        return name, f"none ({error})", "", "", "", ""
    activities = tk.load(path, cache=False).ranks[0].activities.height
    on_gpu = sum(any(one.name == "is_cpu_op" and not one.bool_val for one in node.attr) for node in nodes)
    ids = Counter(node.id for node in nodes)
    needed = {node.id: [*node.ctrl_deps, *node.data_deps] for node in nodes}
    dangling = sum(one not in ids for deps in needed.values() for one in deps) + sum(n > 1 for n in ids.values())
    return name, f"{activities:,}", f"{len(nodes):,}", f"{on_gpu:,}", str(dangling), str(count_circular(needed))


def read_nodes(place: Path) -> list[Any]:
    """Read all nodes by Chakra's own reader."""
    from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd

    file = openFileRd(str(place))
    try:
        decodeMessage(file, GlobalMetadata())
        nodes = []
        while decodeMessage(file, node := Node()):
            nodes.append(node)
    finally:
        file.close()
    return nodes


def count_circular(needed: dict[int, list[int]]) -> int:
    """Count nodes that never become free."""
    left = {one: {dep for dep in deps if dep in needed} for one, deps in needed.items()}
    waiting: dict[int, list[int]] = {one: [] for one in left}
    for one, deps in left.items():
        for dep in deps:
            waiting[dep].append(one)
    free = [one for one, deps in left.items() if not deps]
    done = 0
    while free:
        one = free.pop()
        done += 1
        for other in waiting[one]:
            left[other].discard(one)
            if not left[other]:
                free.append(other)
    return len(left) - done
