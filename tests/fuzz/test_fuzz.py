"""Every build tries the kept cases again, and a few new ones: the same in every build."""

from pathlib import Path

import pytest

from tests.fuzz.search import search
from tests.fuzz.target import CORPUS, TARGETS, list_kept, load_target
from tests.fuzz.targets import foreign_values

SEED = 1
KEPT = [path for name in TARGETS for path in list_kept(name)]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_kept_cases_keep_the_promises(path: Path) -> None:
    target = load_target(path.parent.name)
    target.check(target.load(path.read_bytes()))


@pytest.mark.parametrize("name", TARGETS)
def test_new_cases_keep_the_promises(name: str) -> None:
    target = load_target(name)
    search(target.cases, target.check, examples=target.examples, seed_number=SEED, shrink=False)


def test_every_corpus_has_its_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= {*TARGETS}


@pytest.mark.parametrize("name", foreign_values.FORMS)
def test_what_is_edited_is_read_without_edits(name: str) -> None:
    assert foreign_values.read_document(name, foreign_values.load_document(name)).kernels.height
