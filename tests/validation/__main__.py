"""Run validation studies: ``python -m tests.validation NAME... | all | list``."""

import argparse
import importlib
import sys
import time
from pathlib import Path
from types import ModuleType

from tests.validation.study import INPUTS, MissingInputError

RESULTS = Path(__file__).parent / "results"
STUDIES = (
    "whole_jobs",
    "whole_models",
    "batch_sizes",
    "single_ops",
    "trace_pairs",
    "kernels_in_traces",
    "vector_kernels",
    "kernels_on_unseen_gpus",
    "kernels_without_shapes",
    "booster",
    "collectives_published",
    "collectives_on_one_node",
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "replay",
    "coverage",
    "inference_rules",
    "recorded_samples",
)
"""Modules of ``studies/``: each has a docstring and ``run() -> str``, which returns the tables in Markdown.

One whose figures the packages ship has ``update() -> None`` too, which writes them."""


def main() -> int:
    """Run the named studies, and write the tables of each to ``results/NAME.md``."""
    inputs = "\n".join(f"  {variable}: {what}" for variable, what in INPUTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.validation",
        description=__doc__,
        epilog=f"environment variables that name inputs:\n{inputs}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", nargs="+", metavar="NAME", choices=(*STUDIES, "all", "list"))
    parser.add_argument("--update", action="store_true", help="write the figures that the packages ship, too")
    options = parser.parse_args()
    if "list" in options.studies:
        for name in STUDIES:
            print(f"{name:24} {summarize(load_study(name))}")
        return 0
    names = STUDIES if "all" in options.studies else options.studies
    return max(run_study(name, update=options.update) for name in names)


def load_study(name: str) -> ModuleType:
    """Import a study."""
    return importlib.import_module(f"tests.validation.studies.{name}")


def summarize(study: ModuleType) -> str:
    """Return the first line of a study's docstring."""
    return (study.__doc__ or "").splitlines()[0]


def run_study(name: str, *, update: bool) -> int:
    """Run one study, write its tables, and return the exit code: 1 if an input is missing."""
    began = time.monotonic()
    print(f"{name} ...", file=sys.stderr)
    study = load_study(name)
    try:
        tables = study.run()
    except MissingInputError as error:
        print(f"{name} skipped: {error}", file=sys.stderr)
        return 1
    command = f"python -m tests.validation {name}"
    (RESULTS / f"{name}.md").write_text(
        f"<!-- Written by `{command}`: change the study, not this file. -->\n\n{tables}"
    )
    if update and hasattr(study, "update"):
        study.update()
    print(f"{name} done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
