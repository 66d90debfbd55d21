"""Search guided by coverage: atheris instruments the code, and makes the cases, which are bytes.

A process of its own for each target: ``python -m tests.fuzz.guided_search TARGET SECONDS [SEED]``.
"""

import shutil
import sys
from tempfile import TemporaryDirectory

from tests.fuzz.target import CORPUS, load_target

MAX_CASE_BYTES = 20_000
MAX_CASE_SECONDS = 60


def search_guided(name: str, seconds: str, seed_number: str | None = None) -> None:
    """Search until the time is over, and end the process; cases that break a promise are kept."""
    import atheris

    from tracekit.ingest.native import get_loops

    # First, since numba can't compile what atheris instruments.
    get_loops()
    with atheris.instrument_imports(include=["tracekit"]):
        from tests.fuzz.checker import Checker

        target = load_target(name)
    checker = Checker(target)

    def check(data: bytes) -> None:
        try:
            checker.check(data)
        except Exception as error:
            print(f"{checker.keep_found()}:\n{error}\n", flush=True)

    with TemporaryDirectory() as folder:
        shutil.copytree(CORPUS / name, folder, dirs_exist_ok=True)
        limits = [f"-max_total_time={seconds}", f"-max_len={MAX_CASE_BYTES}", f"-timeout={MAX_CASE_SECONDS}"]
        seed = [] if seed_number is None else [f"-seed={seed_number}"]
        atheris.Setup([sys.argv[0], folder, *limits, *seed], check)
        atheris.Fuzz()


if __name__ == "__main__":
    search_guided(*sys.argv[1:])
