"""The command line, run in this process."""

import signal
import sys

import pytest

from tracekit.cli.app import main
from tracekit.testing import TraceBuilder


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command line; gives exit code, stdout and stderr."""

    handling = signal.getsignal(signal.SIGINT)

    def invoke(*args):
        monkeypatch.setattr(sys, "argv", ["tracekit", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        signal.signal(signal.SIGINT, handling)  # which the command ignores at its end
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return invoke


@pytest.fixture
def trace(tmp_path):
    """A file of one product."""
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    return builder.kernel("ampere_sgemm_128x64_nn", 20, 100, launch=10).save(tmp_path / "trace.json.gz")
