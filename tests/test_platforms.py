"""What Windows and macOS lack is hidden from a process: everything but the web page works without."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codes import has_code
from tracekit.cli.serve import serve
from tracekit.errors import TracekitError

TRACE = str(Path(__file__).parents[1] / "sample_traces" / "synthetic_transformer_train.json.gz")
COMMANDS = [
    ["predict", TRACE, "--gpu", "h100-sxm", "-q", "-o", "page.html"],
    ["report", TRACE, "-q", "-o", "report.json"],
    ["export", TRACE, "-o", "timeline.json.gz"],
    ["doctor", TRACE],
    ["redact", TRACE, "-o", "redacted.json.gz"],
    ["cache"],
]
PROGRAM = """
import os, sys
import platformdirs, psutil  # have a module for each system, chosen when they are imported
for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("chown", "fork", "geteuid", "getuid", "mkfifo", "O_NONBLOCK", "sched_getaffinity", "setsid", "sysconf"):
    delattr(os, name)
from tracekit.cli.app import main
codes = {}
for arguments in COMMANDS:
    sys.argv = ["tracekit", *arguments]
    try:
        main()
    except SystemExit as stop:
        codes[arguments[0]] = stop.code
sys.exit(f"{codes}" if any(codes.values()) else 0)
"""


def test_commands_need_nothing_of_posix(tmp_path):
    program = PROGRAM.replace("COMMANDS", repr(COMMANDS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"page.html", "timeline.json.gz", "redacted.json.gz"}
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["source"]


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_serving_says_where_it_runs(platform, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(TracekitError, check=has_code("serve-needs-linux")):
        serve()
