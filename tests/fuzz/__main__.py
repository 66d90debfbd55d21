"""Fuzz for long: ``python -m tests.fuzz TARGET... | all --seconds N``.

What breaks a promise is kept in tests/fuzz/corpus/TARGET, shrunk, and every build tries it again.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from tests.fuzz.target import GUIDED, TARGETS, list_kept, load_target


def main() -> int:
    """Search the named targets; return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="+", metavar="TARGET", help=f"{', '.join(TARGETS)}, or all")
    parser.add_argument("--seconds", type=int, default=600, help="time for each target; default 600")
    parser.add_argument("--seed", type=int, help="for the same search again")
    options = parser.parse_args()
    names = TARGETS if "all" in options.targets else options.targets
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_CACHE_HOME": folder, "XDG_DATA_HOME": folder}
        return max(search_target(name, options.seconds, options.seed) for name in names)


def search_target(name: str, seconds: int, seed: int | None) -> int:
    """Search one target; return 1 if something was found."""
    before = {*list_kept(name)}
    if name in GUIDED:
        arguments = [str(number) for number in (seconds, seed) if number is not None]
        subprocess.run([sys.executable, "-m", "tests.fuzz.guided_search", name, *arguments], check=True)
    else:
        from tests.fuzz.search import search_long

        for path, error in search_long(load_target(name), seconds, seed):
            print(f"{path}:\n{error}\n", flush=True)
    return int({*list_kept(name)} != before)


if __name__ == "__main__":
    sys.exit(main())
