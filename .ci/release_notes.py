"""Print the changelog's section on the version that a tag names: ``python .ci/release_notes.py v0.1.0``."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def find_notes(tag: str, root: Path = ROOT) -> str:
    """Return the notes of a release.

    Args:
        tag: The version with a v before it.
        root: The checkout.

    Raises:
        SystemExit: The code has another version, or the changelog has no dated section on it.
    """
    code = (root / "tracekit" / "version.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    if tag != f"v{version}":
        raise SystemExit(f"{tag}: tracekit/version.py says {version}")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise SystemExit(f"{tag}: CHANGELOG.md has no section '## {version} (YYYY-MM-DD)'")
    return found[1].strip()


if __name__ == "__main__":
    sys.stdout.write(find_notes(sys.argv[1]) + "\n")
