"""No op counts fewer bytes than its tensors hold, unless its formula says why, over all traces at hand."""

import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from predictors.columns import prepare_kernels
from tests.conftest import SAMPLES, VARIABLE
from tests.kernels import kernel_of
from tracekit.errors import NoGpuActivityError
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.names import infer_item_bytes
from tracekit.workload.op_work import is_helper
from tracekit.workload.ops import compute_work, find_op
from tracekit.workload.ops.memory_traffic import sum_bytes
from tracekit.workload.ops.registry import OPS
from tracekit.workload.signature import ITEM_BYTES, Signature

pytestmark = pytest.mark.heavy

CALL = ("op", "family", "dtype", "name", "input_dims", "input_types", "concrete_inputs", "input_strides")
OWN = [*sorted(SAMPLES.glob("*.json.gz")), *sorted(SAMPLES.glob("recorded/h100-sxm_*.json.gz"))]
GIVEN = sorted(Path(os.environ.get(VARIABLE, ".")).glob("*.json.gz")) if os.environ.get(VARIABLE) else []
ROUNDING = 0.97
"""Of counts of whole rows, and vectors that are left out beside matrices."""


def list_unexplained(kernels):
    """Return the calls that count less than they hold: op, family, bytes, what the tensors hold."""
    known = kernels.filter(pl.col("kind") == "kernel").drop_nulls(["op", "input_dims"])
    calls = known.select(CALL).unique(["op", "family", "input_dims", "input_types", "concrete_inputs", "input_strides"])
    found = []
    for row in calls.iter_rows(named=True):
        signature = Signature.parse(row["op"], *(row[name] for name in CALL[4:]))
        item_bytes = infer_item_bytes(row["name"]) or ITEM_BYTES.get(row["dtype"] or "", 4)
        columns = None if is_helper(row["family"], row["op"]) else compute_work(signature, row["family"], item_bytes)
        if columns is None or find_op(row["op"], row["family"]).unread:
            continue
        work = prepare_kernels(pl.DataFrame([{"dtype": row["dtype"], **columns, "family": row["family"]}]))
        moved, held = work["work_bytes"].item(), sum_bytes(signature.tensors, item_bytes)
        if moved is not None and moved < ROUNDING * held:
            found.append((row["op"], row["family"], moved, held))
    return found


@pytest.mark.parametrize("path", [*OWN, *GIVEN], ids=lambda path: path.name)
def test_bytes_of_a_trace(path):
    if ".et." in path.name:
        pytest.skip("an execution trace of another file")
    try:
        ranks = tk.load(path).ranks
    except NoGpuActivityError:
        pytest.skip("no GPU's work")
    assert list_unexplained(build_kernel_table(ranks[0])) == []


# Read 8 x 4 of 1000 x 4: what a look-up picks is declared; without that it is found.
def test_a_formula_that_reads_less_is_found(monkeypatch):
    row = kernel_of(
        "aten::index_select", "indexSelectSmallIndex", [[1000, 4], [], [8]], ["float", "Scalar", "long int"]
    )
    table = pl.DataFrame([row], infer_schema_length=None)
    assert list_unexplained(table) == []
    monkeypatch.setitem(OPS, "aten::index_select", replace(OPS["aten::index_select"], unread=None))
    assert [found[0] for found in list_unexplained(table)] == ["aten::index_select"]


# Recorded under another op's name: 2 x 8 elements more than aten::pow takes.
def test_an_op_with_more_tensors_than_it_takes_touches_all():
    dims = [[256, 8], [256], [64, 8], [64, 8], []]
    row = kernel_of("aten::pow", "vectorized_elementwise_kernel", dims, [*["float"] * 4, "Scalar"])
    assert row["bytes"] == 4 * (256 * 8 + 256 + 2 * 64 * 8)
