"""The table of a sweep: each column's figure in its unit, and what is left out of it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import tracekit as tk
from tracekit.prediction.sweep import Sweep
from tracekit.render import sweep as render
from tracekit.render.screen import as_text
from tracekit.testing import TraceBuilder

GIB = 1 << 30
CLUSTER = "4x8xh100-sxm@ndr400"


@pytest.fixture(scope="module")
def swept() -> Sweep:
    builder = TraceBuilder().op("autograd::engine::x", 0, 1)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    message = {"Collective name": "allreduce", "In msg nelems": 2**24, "dtype": "BFloat16", "Group size": 8}
    builder.op("record_param_comms", 2, 10, **message).kernel("ncclDevKernel_AllReduce", 20, 400, launch=4)
    return tk.sweep(builder.load(), cluster=CLUSTER, samples=32)


def change(swept: Sweep, memory: dict[str, Any], step: dict[str, Any], entry: dict[str, Any], **changed: Any) -> Sweep:
    """The sweep with its first layout's figures as given."""
    first, *others = swept.entries
    known = first.prediction
    changed |= {"memory": replace(known.memory, **memory), "step": replace(known.step, **step)}
    return replace(swept, entries=[replace(first, prediction=replace(known, **changed), **entry), *others])


def read_rows(sweep: Any) -> list[dict[str, str]]:
    """The rows of the Markdown table by heading."""
    text = render.render_markdown(sweep).replace("\\", "")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(heads, row, strict=True)) for row in rows]


def report(sweep: Sweep, **changed: Any) -> Any:
    """What the report adds to a sweep, which the table only passes on."""
    told = {
        "trace": "t.json",
        "step_time_us": 500.0,
        "layout": "8 ranks",
        "has_baseline": True,
        "limits": {},
        "refused": (),
        "warnings": (),
        "assumptions": (),
    }
    fields = {name: getattr(sweep, name) for name in ("entries", "unit", "knees") if hasattr(sweep, name)}
    return SimpleNamespace(**told | {"straggler_note": None} | fields | changed)


def test_each_column_has_its_unit(swept: Sweep) -> None:
    """32 GPUs of 225 dollars an hour do 32 samples each: 2 dollars a second."""
    memory = {"min_bytes": 10 * GIB, "max_bytes": 12 * GIB + GIB // 2, "fits": False}
    changed = change(
        swept,
        memory,
        {"step_time_us": 1234.0, "mean_us": 1234.0, "exposed_comm_us": 56.0},
        {"efficiency": 0.75, "is_tied": True},
        low_us=1000.0,
        high_us=2000.0,
        price=225.0,
        pipeline=SimpleNamespace(bubble=0.25, micro_batches=8),
    )
    first = read_rows(report(changed))[0]
    assert first == {
        "ranks": "32",
        "step": "1.23 ms",
        "90 % interval": "1.00–2.00 ms",
        "samples/s": "≈829,822",
        "per GPU": "75 %",
        "$/1k": "2.47",
        "$/1M": "2.41",
        "bubble": "25 %",
        "GiB, fits": "10.0–12.5 no",
        "comm": "56.0 µs",
    }


def test_columns_that_say_nothing_are_left_out(swept: Sweep) -> None:
    one = read_rows(report(swept))[0]
    assert not {"on", "layout", "bubble", "$/1k", "$/1M"} & set(one)
    two = report(swept, knees={CLUSTER: 8, "another": None})
    assert read_rows(two)[0]["on"] == "#1"


@pytest.mark.parametrize(("top", "said"), [(1, "2 more: --top 3"), (2, "1 more: --top 3"), (3, None), (9, None)])
def test_layouts_that_have_no_room_are_counted(swept: Sweep, top: int, said: str | None) -> None:
    text = as_text(render.render_sweep(report(swept), top))
    assert ("more: --top" in text) is (said is not None)
    assert said is None or said in text
