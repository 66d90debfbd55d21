"""A run of stages: where they write, how much time is left, and what is noted about each."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tracekit.recording.facts import collect_facts

CLOCKS_MODULE = "tests.validation.on_gpu.clocks"


@dataclass
class Session:
    """What the stages share.

    Attributes:
        folder: Where the stages write.
        device: ``cuda``, or ``cpu`` with small models.
        minutes: What doesn't begin in this time is left out.
        shorten: Divides the time that things are held.
        power_caps_w: Power limits to measure under.
    """

    folder: Path
    device: str
    minutes: float
    shorten: float = 1.0
    power_caps_w: tuple[float, ...] = ()
    _begin_s: float = field(default_factory=time.time)
    _stages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_small(self) -> bool:
        """Whether small models must do, as on a CPU."""
        return self.device == "cpu"

    @contextmanager
    def log_clocks(self) -> Iterator[None]:
        """Write clocks and power to clocks.csv meanwhile, by a process of its own."""
        command = [sys.executable, "-m", CLOCKS_MODULE, str(self.folder / "clocks.csv")]
        process = None if self.is_small else subprocess.Popen(command)
        try:
            yield
        finally:
            if process is not None:
                process.terminate()
                process.wait()

    def run_stage(self, name: str, stage: "Stage") -> None:
        """Run a stage, and note when it ran and how it failed; the next ones run all the same."""
        notes: dict[str, Any] = {"name": name, "begin_s": time.time(), "left_out": [], "failed": {}}
        self._stages.append(notes)
        self.print_progress(f"{name} ...")
        try:
            stage(self)
        except Exception as error:
            notes["failed"]["all"] = describe(error)
        notes["end_s"] = time.time()
        self._release_memory()
        self.write("machine.json", {**collect_facts(), "begin_s": self._begin_s, "stages": self._stages})
        self.print_progress(f"{name}: {notes['end_s'] - notes['begin_s']:.0f} s, {len(notes['failed'])} failed")

    def run_each(self, items: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Run what has a name, as long as there is time, and return the results of those that didn't fail."""
        notes, results = self._stages[-1], {}
        for name, call in items.items():
            if time.time() - self._begin_s > 60 * self.minutes:
                notes["left_out"].append(name)
                continue
            try:
                results[name] = call()
            except Exception as error:
                notes["failed"][name] = describe(error)
                self.print_progress(f"{name}: {describe(error)}")
            self._release_memory()
        return results

    def write(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        (self.folder / name).write_text(json.dumps(content, indent=1) + "\n")

    def print_progress(self, text: str) -> None:
        """Print a line with the seconds since the beginning."""
        print(f"{time.time() - self._begin_s:6.0f} s  {text}", file=sys.stderr, flush=True)

    def _release_memory(self) -> None:
        if not self.is_small:
            torch.cuda.empty_cache()


Stage = Callable[[Session], None]


def describe(error: Exception) -> str:
    """Describe an error in a line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
