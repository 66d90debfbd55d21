"""Find the modules that TorchScript recorded on its ops (``with_modules=True``).

It writes one module per call (``currentModuleHierarchy`` in torch's ``interpreter.cpp``), outermost first, with the
attribute that holds it and its class: ``TOP(Net)::forward.0(Block)::forward.fc1(Linear)::forward.::relu.``. It doesn't
record lists of modules; the modules inside have their index as name.
"""

import polars as pl

from tracekit.workload.owners import find_innermost_ops

MODULE_CALL = r"[^.():]+\([^()]*\)::"
OUTERMOST_CALL = r"^TOP\(([^()]+)\)"
SELF_NAMES = ("TOP", "SELF")
"""Names of a module that calls a method of its own."""
UNNAMED_INSTANCE = "INSTANCE_NAME_UNKNOWN"

PYTHON_WRAPPER = r"\b(?:RecursiveScriptModule|TopLevelTracedModule|TracedModule)((?:_\d+)?)$"
"""Python's class name of the outermost module, whatever its original class."""

SPAN_COLUMNS = ("ts_ns", "dur_ns", "pid", "tid")


def find_torchscript_modules(ops: pl.DataFrame) -> pl.DataFrame:
    """Find ops with a module: ``SPAN_COLUMNS``, ``outermost`` (its class) and ``inside`` (labels of modules in it).

    Code optimised by TorchScript doesn't name the outermost module; the op of that module's call does.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    noted = ops.filter(pl.col("module_hierarchy") != "").select(*SPAN_COLUMNS, "module_hierarchy")
    texts = noted.select("module_hierarchy").unique(maintain_order=True)
    label = texts.select("module_hierarchy", call=pl.col("module_hierarchy").str.extract_all(MODULE_CALL)).explode(
        "call"
    )
    name, cls = pl.col("call").str.extract(r"^([^(]+)"), pl.col("call").str.extract(r"\(([^()]+)\)")
    labels = label.filter(cls.is_not_null(), ~name.is_in(SELF_NAMES)).select(
        "module_hierarchy", label=pl.when(name == UNNAMED_INSTANCE).then(cls).otherwise(pl.format("{}_{}", cls, name))
    )
    inside = labels.group_by("module_hierarchy", maintain_order=True).agg(inside=pl.col("label").str.join("."))
    told = noted.join(inside, on="module_hierarchy", how="left", maintain_order="left").with_columns(
        outermost=pl.col("module_hierarchy").str.extract(OUTERMOST_CALL)
    )
    calls = told.drop_nulls("outermost")
    around = calls["outermost"].gather(find_innermost_ops(told, calls))
    known = told.with_columns(outermost=pl.coalesce("outermost", around))
    return known.filter(pl.any_horizontal(pl.col("outermost", "inside").is_not_null()))


def join_module_paths(python: pl.Series, outermost: pl.Series, inside: pl.Series) -> pl.Series:
    """Join the paths of modules that Python's profiler recorded with those of TorchScript below them.

    Args:
        python: Path of Python's innermost module; null if unknown.
        outermost: Class of TorchScript's outermost module; null outside of TorchScript, or if unknown.
        inside: Labels of the modules within it; null if there is none.
    """
    table = pl.DataFrame({"python": python, "outermost": outermost, "inside": inside})
    named = pl.col("python").str.replace(PYTHON_WRAPPER, pl.concat_str("outermost", pl.lit("$1")))
    above = pl.coalesce(named, "python", "outermost")
    return table.select(pl.concat_str(above, "inside", separator=".", ignore_nulls=True)).to_series().replace("", None)
