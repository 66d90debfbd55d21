"""Find the tables to shard in a trace's look-ups."""

from tracekit.analysis.embedding_tables import TableKind, list_table_kinds
from tracekit.run import MeasuredRun
from tracekit.sharding.tables import DEFAULT_OPTIMIZER, WEIGHT_BYTES, PlannedTable, TableDefaults
from tracekit.workload.ops.table_lookups import OPTIMIZER_STATE


def find_tables(run: MeasuredRun, defaults: TableDefaults) -> tuple[list[PlannedTable], int]:
    """Find the tables of all ranks, and the samples that a rank takes in a step.

    Tables that a job has split over its ranks are looked up for the samples of all ranks, those that each rank has a
    copy of for its own.

    Args:
        run: The measured run.
        defaults: What updates them, and how their rows are looked up; the types of weights are those of the trace.

    Returns:
        The tables, and the samples; no tables where none were recorded with their shapes.
    """
    kinds = list_table_kinds(run)
    if not kinds:
        return [], 0
    samples = max(kind.bags for kind in kinds)
    tables = [table for number, kind in enumerate(kinds) for table in _name_tables(number, kind, defaults)]
    return tables, max(round(samples / run.trace.world_size), 1)


def _name_tables(number: int, kind: TableKind, defaults: TableDefaults) -> list[PlannedTable]:
    known = defaults.optimizer or kind.optimizer or DEFAULT_OPTIMIZER
    return [
        PlannedTable(
            name=f"rank{kind.rank}_lookup{number}_table{place}",
            rows=kind.rows,
            width=kind.width,
            pooling=kind.indices / max(kind.bags, 1.0),
            pattern=defaults.pattern,
            weight_type=next((name for name, size in WEIGHT_BYTES.items() if size == kind.item_bytes), "fp32"),
            optimizer=known if known in OPTIMIZER_STATE else DEFAULT_OPTIMIZER,
        )
        for place in range(kind.tables)
    ]
