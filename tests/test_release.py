"""A tag releases the version of the code, with the changelog's section on it."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tracekit.version import __version__

ROOT = Path(__file__).parents[1]
find_notes = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["find_notes"]


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "tracekit").mkdir()
    (tmp_path / "tracekit" / "version.py").write_text('"""."""\n\n__version__ = "1.2.0"\n', encoding="utf-8")
    changes = "# Changelog\n\n## 1.2.0 (2026-12-01)\n\n- New.\n\n## 1.1.0 (2026-11-01)\n\n- Old.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes, encoding="utf-8")
    return tmp_path


def test_the_notes_are_the_versions_section(checkout):
    assert find_notes("v1.2.0", checkout) == "- New."


@pytest.mark.parametrize("tag", ["v1.1.0", "1.2.0", "v1.2"])
def test_another_version_than_the_codes_is_not_released(checkout, tag):
    with pytest.raises(SystemExit, match=r"version\.py says 1\.2\.0"):
        find_notes(tag, checkout)


def test_an_undated_section_is_not_released(checkout):
    changes = checkout / "CHANGELOG.md"
    changes.write_text(changes.read_text("utf-8").replace("2026-12-01", "unreleased"), "utf-8")
    with pytest.raises(SystemExit, match="has no section"):
        find_notes("v1.2.0", checkout)


def test_extras_that_messages_name_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = set()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tracekit").rglob("*.py")]:
        named |= set(re.findall(r"tracekit-gpu\[([a-z,]+)\]|extra=\"([a-z]+)\"", path.read_text("utf-8")))
    extras = {extra for pair in named for one in pair for extra in one.split(",") if extra}
    assert extras <= {*project["optional-dependencies"]}
    assert project["name"] == "tracekit-gpu"
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_wheel_predicts_without_what_weights_are_fitted_with():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["exclude"] == ["predictors/training"]
    predict = """
import sys
sys.modules["predictors.training"] = None
from tracekit.cli.app import main
sys.argv[1:] = ["predict", "sample_traces/synthetic_transformer_train.json.gz", "--gpu", "h100-sxm"]
main()
"""
    result = subprocess.run([sys.executable, "-c", predict], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "H100" in result.stdout
