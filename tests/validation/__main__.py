"""Run validation studies: ``python -m tests.validation NAME... | all | list``."""

import argparse
import importlib
import sys
import time
from pathlib import Path

from tests.validation.study import MissingInputError

RESULTS = Path(__file__).parent / "results"
STUDIES = ("inference_rules",)
"""Modules of ``studies/``: each has a docstring and ``run() -> str``, which returns the table in Markdown."""


def main() -> int:
    """Run the named studies, and write the table of each to ``results/NAME.md``."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation", description=__doc__)
    parser.add_argument("studies", nargs="+", metavar="NAME", choices=(*STUDIES, "all", "list"))
    names = parser.parse_args().studies
    modules = {name: importlib.import_module(f"tests.validation.studies.{name}") for name in STUDIES}
    if "list" in names:
        for name, module in modules.items():
            print(f"{name:20} {(module.__doc__ or '').splitlines()[0]}")
        return 0
    missing = 0
    for name in STUDIES if "all" in names else names:
        began = time.monotonic()
        print(f"{name} ...", file=sys.stderr)
        try:
            table = modules[name].run()
        except MissingInputError as error:
            print(f"{name} skipped: {error}", file=sys.stderr)
            missing += 1
            continue
        command = f"python -m tests.validation {name}"
        (RESULTS / f"{name}.md").write_text(
            f"<!-- Written by `{command}`: change the study, not this file. -->\n\n{table}"
        )
        print(f"{name} done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
