"""Modules that ops of TorchScript note themselves (``with_modules=True``).

It writes a module per call (``currentModuleHierarchy`` in torch's ``interpreter.cpp``), outermost first, by the
attribute that holds it and by class: ``TOP(Net)::forward.0(Block)::forward.fc1(Linear)::forward.::relu.``. Lists of
modules are no modules to it; those inside have their place as name.
"""

import polars as pl

from tracekit.workload.owners import innermost_ops

CALL = r"[^.():]+\([^()]*\)::"
OUTERMOST = r"^TOP\(([^()]+)\)"
OWN = ("TOP", "SELF")
"""Names of a module whose own method runs."""
UNNAMED = "INSTANCE_NAME_UNKNOWN"

WRAPPER = r"\b(?:RecursiveScriptModule|TopLevelTracedModule|TracedModule)((?:_\d+)?)$"
"""What Python calls the outermost one, whatever its class."""

SPAN = ("ts_ns", "dur_ns", "pid", "tid")


def modules(ops: pl.DataFrame) -> pl.DataFrame:
    """Ops that note their module: ``SPAN``, ``outermost`` (its class) and ``inside`` (labels of those within it).

    Code that TorchScript optimised doesn't name the outermost module; the op that is the module's call does.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    noted = ops.filter(pl.col("module_hierarchy") != "").select(*SPAN, "module_hierarchy")
    texts = noted.select("module_hierarchy").unique(maintain_order=True)
    label = texts.select("module_hierarchy", call=pl.col("module_hierarchy").str.extract_all(CALL)).explode("call")
    name, cls = pl.col("call").str.extract(r"^([^(]+)"), pl.col("call").str.extract(r"\(([^()]+)\)")
    labels = label.filter(cls.is_not_null(), ~name.is_in(OWN)).select(
        "module_hierarchy", label=pl.when(name == UNNAMED).then(cls).otherwise(pl.format("{}_{}", cls, name))
    )
    inside = labels.group_by("module_hierarchy", maintain_order=True).agg(inside=pl.col("label").str.join("."))
    told = noted.join(inside, on="module_hierarchy", how="left", maintain_order="left").with_columns(
        outermost=pl.col("module_hierarchy").str.extract(OUTERMOST)
    )
    calls = told.drop_nulls("outermost")
    around = calls["outermost"].gather(innermost_ops(told, calls))
    known = told.with_columns(outermost=pl.coalesce("outermost", around))
    return known.filter(pl.any_horizontal(pl.col("outermost", "inside").is_not_null()))


def path(python: pl.Series, outermost: pl.Series, inside: pl.Series) -> pl.Series:
    """Paths of modules that Python's profiler saw and, below them, TorchScript.

    Args:
        python: Path of Python's innermost module; null where none is known.
        outermost: Class of TorchScript's outermost module; null outside of TorchScript, or where it isn't known.
        inside: Labels of the modules within it; null where there is none.
    """
    table = pl.DataFrame({"python": python, "outermost": outermost, "inside": inside})
    named = pl.col("python").str.replace(WRAPPER, pl.concat_str("outermost", pl.lit("$1")))
    above = pl.coalesce(named, "python", "outermost")
    return table.select(pl.concat_str(above, "inside", separator=".", ignore_nulls=True)).to_series().replace("", None)
