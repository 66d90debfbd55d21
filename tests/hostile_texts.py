"""Texts that act wherever they aren't taken for data, and traces in which every text is one."""

import json
import re
from pathlib import Path
from typing import Any

from tracekit.testing import TraceBuilder

ESCAPES = "\x1b]0;pwned\x07\x1b[31m\x9b2J\x07\x08"
DIRECTIONS = "\u202egpj\u2066\u200f\u061c\u200b\ufeff\u2028\x85"
MARKUP = "|`<img src=x onerror=alert(1)>`</script><!--[a](http://e.example)**b** http://e.example {{7*7}} [red]:smile:"
PAYLOAD = f"{ESCAPES}{DIRECTIONS}{MARKUP}\n# head\r- item"
FORMULAS = ('=HYPERLINK("http://e.example","x")', "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", " =1")

STRUCTURE = ("ph", "cat", "id", "s", "bp")
"""Keys of an event whose values say what it is."""


def make_hostile(value: Any, at_front: bool) -> Any:
    """Return decoded JSON with the payload at the front or the end of every text in it."""
    if isinstance(value, str):
        return PAYLOAD + value if at_front else value + PAYLOAD
    if isinstance(value, list):
        return [make_hostile(one, at_front) for one in value]
    if isinstance(value, dict):
        return {key: one if key in STRUCTURE else make_hostile(one, at_front) for key, one in value.items()}
    return value


def build_document(at_front: bool, rank: int | None = None) -> dict[str, Any]:
    """Build a trace of two steps in which every text is hostile."""
    builder = TraceBuilder()
    for number, start in enumerate((0, 1000)):
        builder.step(number, start, 900)
        builder.op("aten::mm", start + 10, 40, dims=[[512, 512], [512, 512]], types=["float", "float"])
        builder.kernel("ampere_sgemm_128x64_nn", start + 60, 100, launch=start + 20, grid=[8, 1, 1], block=[128, 1, 1])
        for at, name in enumerate(FORMULAS):
            builder.op(name, start + 200 + 40 * at, 30, dims=[[64, 32]], types=["float"])
            builder.kernel(name, start + 210 + 40 * at, 20, launch=start + 202 + 40 * at)
        builder.kernel(
            "Memcpy HtoD (Pageable -> Device)", start + 600, 20, launch=start + 580, kind="gpu_memcpy", bytes=4
        )
        message = {"Collective name": "allreduce", "In msg nelems": 2**20, "dtype": "Float", "Group size": 2}
        builder.op("record_param_comms", start + 640, 20, **message, **{"Process Group Name": "0"})
        builder.kernel("ncclDevKernel_AllReduce", start + 660, 50, launch=start + 645, **message)
        builder.python("nn.Module: Linear_0", start + 5, 700).annotation("forward", start + 2, 500)
        builder.call("cudaDeviceSynchronize", start + 720, 10)
    document = json.loads(builder.to_json())
    marks = [event for event in document["traceEvents"] if str(event["name"]).startswith("ProfilerStep")]
    steps = {id(event) for event in marks}
    events = [event if id(event) in steps else make_hostile(event, at_front) for event in document["traceEvents"]]
    lost = {"ph": "X", "cat": PAYLOAD, "name": PAYLOAD, "pid": PAYLOAD, "tid": PAYLOAD, "ts": 5, "dur": 1, "args": {}}
    names = {
        "ph": "M",
        "name": "process_name",
        "pid": 0,
        "tid": 0,
        "ts": 0,
        "args": {"name": PAYLOAD, "labels": PAYLOAD},
    }
    kept = {key: value for key, value in document.items() if key != "traceEvents"}
    hostile = make_hostile(kept, at_front=False) | {PAYLOAD: PAYLOAD, "traceName": PAYLOAD, "hostname": PAYLOAD}
    if rank is not None:
        hostile["distributedInfo"] = {"rank": rank, "world_size": 2, "backend": PAYLOAD, "pg_config": PAYLOAD}
    return hostile | {"traceEvents": [*events, lost, lost | {"cat": "kernel", "dur": "x"}, names]}


def write_hostile_files(directory: Path) -> dict[str, Path]:
    """Write traces, a GPU and a cluster whose texts and names are hostile; return them by what they are."""
    name = re.sub(r"[/\n\r[*?]", "", PAYLOAD)[:60]  # nothing that a path or a glob takes apart
    files = {}
    for kind, at_front, rank in (("front", True, None), ("end", False, 0), ("other", False, None)):
        files[kind] = directory / f"{name}{kind}.json"
        files[kind].write_text(json.dumps(build_document(at_front, rank)), encoding="utf-8")
    root = Path(__file__).parents[1]
    quoted = json.dumps(PAYLOAD)
    gpu = (root / "predictors/gpus/l4.toml").read_text()
    cluster = (root / "tracekit/comm/clusters/dgx-h100.toml").read_text()
    for kind, text in (("gpu", gpu), ("cluster", cluster)):
        files[kind] = directory / f"{name}{kind}.toml"
        first = next(line for line in text.splitlines() if line.startswith("name"))
        files[kind].write_text(text.replace(first, f"name = {quoted}"), encoding="utf-8")
    return files
