"""Sources that are named are downloaded once, at their pinned commit."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from predictors.training import download
from predictors.training.datasets import SOURCES, load_datasets
from predictors.training.download import find_source


def run_git(*arguments: str) -> str:
    person = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", *person, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A repository in place of PipeWeave's tables, its first commit of two; and an empty cache."""
    repository = tmp_path / "public" / "PipeWeave"
    repository.mkdir(parents=True)
    run_git("init", "--quiet", str(repository))
    row = {"hardware": "NVIDIA H100", "m": 64, "n": 4096, "k": 1024, "latency_us": 12.5}
    commits = []
    for latency_us in (12.5, 50.0):
        pl.DataFrame([row | {"latency_us": latency_us}]).write_parquet(repository / "gemm_fp8.parquet")
        run_git("-C", str(repository), "add", ".")
        run_git("-C", str(repository), "commit", "--quiet", "-m", "measured")
        commits.append(run_git("-C", str(repository), "rev-parse", "HEAD"))
    public = replace(SOURCES["pipeweave"], origin=repository.as_uri(), pinned=commits[0])
    monkeypatch.setitem(SOURCES, "pipeweave", public)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return commits[0]


def test_a_named_repository_is_checked_out_once_at_its_pinned_commit(
    commit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    folder = find_source("pipeweave")
    assert folder == tmp_path / f"cache/tracekit/sources/pipeweave-{commit}/PipeWeave"
    assert load_datasets(folder)["latency_us"].to_list() == [12.5]
    assert capsys.readouterr().out.startswith("downloading file://")
    monkeypatch.setattr(download, "_run", lambda command: pytest.fail(f"runs {command}"))
    assert find_source("PIPEWEAVE") == folder
    assert find_source(str(tmp_path)) == tmp_path


def test_another_commit_than_the_pinned_one_may_be_named(commit: str, tmp_path: Path):
    newest = run_git("-C", str(tmp_path / "public/PipeWeave"), "rev-parse", "HEAD")
    assert newest != commit
    assert load_datasets(find_source(f"pipeweave=={newest}"))["latency_us"].to_list() == [50.0]


@pytest.mark.usefixtures("commit")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no-such-folder", r"no-such-folder is neither a folder nor a source; sources: aiconfigurator, "),
        ("tracelens", r"tracelens can't be downloaded; give the folder of its tables"),
        (f"pipeweave=={'0' * 40}", r"git .* fetch .*: .*"),
    ],
)
def test_what_cannot_be_found_says_so_and_leaves_nothing_behind(text: str, told: str, tmp_path: Path):
    with pytest.raises(ValueError, match=told):
        find_source(text)
    assert list(tmp_path.glob("cache/tracekit/sources/*")) == []
