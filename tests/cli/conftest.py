"""The command line, run in this process."""

import sys

import pytest

from tracekit.cli.app import main


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command line; gives exit code, stdout and stderr."""

    def invoke(*args):
        monkeypatch.setattr(sys, "argv", ["tracekit", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return invoke
