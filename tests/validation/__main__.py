"""Run validation studies: ``python -m tests.validation STUDY[/TABLE]... | all | list``."""

import argparse
import sys
import time
from collections.abc import Iterator

from tests.validation.catalogue import STUDIES, Table, find_tables, load_study
from tests.validation.study import KNOWN_INPUTS, MissingInputError


def main(arguments: list[str] | None = None) -> int:
    """Run the named studies and write their tables, or list them."""
    inputs = "\n".join(f"  {variable}: {what}" for variable, what in KNOWN_INPUTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.validation",
        description="Run studies of accuracy, and write their tables to tests/validation/results/.",
        epilog=f"environment variables that name inputs:\n{inputs}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="STUDY, STUDY/TABLE, all, or list")
    parser.add_argument("--update", action="store_true", help="write the figures that the packages ship, too")
    options = parser.parse_args(arguments)
    if "list" in options.names:
        print("\n".join(list_studies()))
        return 0
    try:
        tables = [table for name in options.names for table in find_tables(name)]
    except KeyError as error:
        parser.error(f"no study or table {error}; `list` names them")
    return max(write_table(table, update=options.update) for table in tables)


def list_studies() -> Iterator[str]:
    """Yield the lines of the list: questions, tables, inputs and results."""
    for name in STUDIES:
        study = load_study(name)
        yield f"{name}: {study.question}"
        for table in study.tables:
            if table.name != name:
                yield f"  {table.name}: {table.summary}"
            written = "" if table.results.exists() else " (not written yet)"
            yield f"    reads {' '.join(table.inputs) or 'nothing'}, writes results/{table.name}.md{written}"


def write_table(table: Table, *, update: bool) -> int:
    """Run one table, write it, and return the exit code: 1 if an input is missing."""
    began = time.monotonic()
    print(f"{table.name} ...", file=sys.stderr)
    try:
        text = table.run()
    except MissingInputError as error:
        print(f"{table.name} skipped: {error}", file=sys.stderr)
        return 1
    command = f"python -m tests.validation {table.name}"
    table.results.parent.mkdir(exist_ok=True)
    table.results.write_text(f"<!-- Written by `{command}`: change the study, not this file. -->\n\n{text}")
    if update:
        table.update()
    print(f"{table.name} done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
