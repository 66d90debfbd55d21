"""Tell what named ranges of a profiler stand for: PyTorch's ops, steps, or annotations.

``torch.autograd.profiler.emit_nvtx`` names an op's range ``aten::mm, seq = 3, op_id = 7, sizes = [[8, 8], [8, 8]]``
(``getNvtxStr`` of ``torch/csrc/profiler/util.cpp``). Steps are ranges such as ``step 12`` or ``iteration_12``.
"""

import polars as pl

_OP = (
    r"^(?P<name>.*?)(?:, seq = (?P<sequence>\d{1,18}))?, op_id = (?P<id>\d{1,18})"
    r"(?:, sizes = (?P<dims>\[.*?\]))?(?:, input_op_ids = .*)?$"
)
_STEP = r"(?i)^(?:train(?:ing)?[ _-]?)?(?:step|iter|iteration|batch)[ _:#=-]*([0-9]{1,18})$"


def split_ranges(ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split ranges into ops and annotations; steps are named as PyTorch's profiler names them.

    Args:
        ranges: ``ts_ns``, ``dur_ns``, ``name``, ``pid`` and ``tid``.
    """
    span = ranges.select("ts_ns", "dur_ns", "name", "pid", "tid")
    part = pl.col("name").str.extract_groups(_OP).struct
    is_op = part.field("id").is_not_null()
    ops = span.filter(is_op).with_columns(
        name=part.field("name"), sequence=part.field("sequence").cast(pl.Int64), input_dims=part.field("dims")
    )
    step = pl.format("ProfilerStep#{}", pl.col("name").str.extract(_STEP))
    return ops, span.filter(~is_op).with_columns(name=pl.coalesce(step, "name"))
