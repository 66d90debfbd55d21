"""Download what public sources measured, at the commit or version that the weights are fitted on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from predictors.training.datasets import SOURCES, Source


def find_source(text: str) -> Path:
    """Return the folder of a source: one on this machine as it is, a known name's from the cache or downloaded.

    Args:
        text: Folder or file; else a name from `SOURCES` or that of its repository or package, in any case, which
            ``==`` and another commit or version may follow.

    Raises:
        ValueError: It is neither, or the download fails.
    """
    if Path(text).exists():
        return Path(text)
    called, _, version = text.lower().partition("==")
    for name, source in SOURCES.items():
        if called in (name, source.repository.lower()):
            return _download(name, source, version or source.pinned)
    raise ValueError(f"{text} is neither a folder nor a source; sources: {', '.join(SOURCES)}")


def _download(name: str, source: Source, version: str) -> Path:
    if not source.origin:
        raise ValueError(f"{name} can't be downloaded; give the folder of its tables")
    folder = _get_cache() / f"{name}-{version}"
    if not folder.exists():
        print(f"downloading {source.origin} {version} to {folder}", flush=True)  # noqa: T201
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
            partial = Path(parent, name)
            partial.mkdir()
            fetch = _fetch_commit if _is_repository(source) else _fetch_wheel
            fetch(source.origin, version, partial)
            partial.rename(folder)
    return folder / source.repository if _is_repository(source) else next(folder.glob("*.whl"))


def _is_repository(source: Source) -> bool:
    return "://" in source.origin


def _get_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit" / "sources"


def _fetch_wheel(package: str, version: str, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    _run([*pip, "--dest", str(folder), f"{package}=={version}"])


def _fetch_commit(address: str, commit: str, folder: Path) -> None:
    """Check out one commit, without the history before it, in a folder named after the repository."""
    git = ["git", "-C", str(folder / address.rsplit("/", 1)[-1])]
    _run(["git", "init", "--quiet", git[-1]])
    _run([*git, "fetch", "--quiet", "--depth", "1", address, commit])
    _run([*git, "checkout", "--quiet", "FETCH_HEAD"])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"{command[0]} doesn't run: {error}") from error
    if done.returncode:
        raise ValueError(f"{' '.join(command)}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
