"""Two servers of one store, and what goes wrong around them: kills, a full disk, a clock that jumps.

The steady server is never killed, so that its memory tells of the whole time; the other one is.
"""

import os
import random
import shlex
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from tests.web.conftest import Server, find_free_port
from tracekit.web.settings import Settings

CLOCK_VARIABLE = "TRACEKIT_TEST_CLOCK"
CLOCK_SITE = f"""
import os, time
_real, _path = time.time, os.environ["{CLOCK_VARIABLE}"]
def _read():
    with open(_path) as file:
        return _real() + float(file.read())
time.time = _read
"""
"""A ``sitecustomize`` that moves the clock of each Python process by the seconds in a file."""

START_S = 600.0
"""Within which a server starts, on a machine with more to do."""
LEASE_S = 4.0
JUMPS_S = (-3 * 3600.0, -60.0, -1.5 * LEASE_S, 0.0, 1.5 * LEASE_S, 60.0, 3 * 3600.0)
"""Where the clock may jump to: less than anything is kept for, and about as far as a lease lasts."""
FULL_S = (2.0, 8.0)
BLOCK_BYTES = 1 << 16


@dataclass
class Clock:
    """The clock of all servers and workers."""

    folder: Path

    def __post_init__(self) -> None:
        self.path = self.folder / "seconds"
        self.folder.mkdir()
        (self.folder / "sitecustomize.py").write_text(CLOCK_SITE)
        self.jump(0.0)

    def jump(self, seconds: float) -> None:
        """Let the clock be so far ahead."""
        new = self.path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.path)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of processes that go by this clock."""
        path = os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH", "")]))
        return os.environ | {"PYTHONPATH": path, CLOCK_VARIABLE: str(self.path)}


@contextmanager
def mount_small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mount a disk of so many megabytes on a folder; give false where this process may not."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    is_mounted = not subprocess.run(["mount", *options], capture_output=True, check=False).returncode
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def fill_disk(path: Path) -> None:
    """Lengthen a file until there is no room left."""
    for block_bytes in (BLOCK_BYTES, 1):
        with suppress(OSError), path.open("ab", buffering=0) as file:
            while file.write(bytes(block_bytes)):
                pass


@dataclass
class Chaos:
    """Two servers, and the faults that befall them, each at a random time.

    Args:
        settings: Of both servers; ports are chosen here.
        clock: Their clock.
        log: Where their stderr goes.
        chance: Chooses faults and pauses.
        restart_database: Command that kills and starts the database; ``None`` for none.
        can_fill: Whether their disk may be filled.

    Attributes:
        faults: How often each kind happened.
        failed: What ended the faults before :meth:`stop_faults`.
    """

    settings: Settings
    clock: Clock
    log: BinaryIO
    chance: random.Random
    restart_database: str | None
    can_fill: bool
    faults: Counter[str] = field(default_factory=Counter)
    failed: str = ""

    def __post_init__(self) -> None:
        self.steady, self.other = self._start(), self._start()
        self.ballast = self.settings.data.parent / "ballast"
        self._ending = threading.Event()
        self.kinds: dict[str, Callable[[], object]] = {
            "worker killed": self._kill_worker,
            "server killed": self._kill_server,
            "server and worker killed": lambda: (self._kill_worker(), self._kill_server()),
            "clock jumps": lambda: self.clock.jump(self.chance.choice(JUMPS_S)),
        }
        if self.can_fill:
            self.kinds["disk full"] = self._fill_for_a_while
        if self.restart_database:
            self.kinds["database killed"] = self._restart_database

    @property
    def servers(self) -> tuple[Server, Server]:
        """Both servers."""
        return self.steady, self.other

    def run(self, pauses_s: tuple[float, float]) -> None:
        """Let faults happen until :meth:`stop_faults`, each kind once in every round."""
        while True:
            for kind in self.chance.sample([*self.kinds], len(self.kinds)):
                if self._ending.wait(self.chance.uniform(*pauses_s)):
                    return
                self.faults[kind] += 1
                try:
                    self.kinds[kind]()
                except Exception as error:
                    self.failed = f"{kind} ends the faults: {error!r}"
                    return

    def stop_faults(self) -> None:
        """Let no more faults happen."""
        self._ending.set()

    def end(self) -> None:
        """End both servers."""
        for server in self.servers:
            server.end(signal.SIGTERM)

    def _start(self) -> Server:
        settings = replace(self.settings, port=find_free_port())
        return Server(settings, START_S, env=self.clock.environment, stderr=self.log)

    def _kill_worker(self) -> None:
        for process in self.other.workers:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _kill_server(self) -> None:
        self.other.end()
        self.other = self._start()

    def _fill_for_a_while(self) -> None:
        end = time.monotonic() + self.chance.uniform(*FULL_S)
        while time.monotonic() < end:
            fill_disk(self.ballast)  # again and again: what others remove makes room
            self._ending.wait(0.1)
        self.ballast.unlink()

    def _restart_database(self) -> None:
        subprocess.run(shlex.split(str(self.restart_database)), check=True, stdout=subprocess.DEVNULL)


@dataclass
class Use:
    """What a process uses over time: bytes of memory, open files."""

    process: int
    memory_bytes: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def measure(self) -> bool:
        """Measure once more; return false if the process has ended."""
        place = Path(f"/proc/{self.process}")
        try:
            pages = int((place / "statm").read_text().split()[1])
            files = len(os.listdir(place / "fd"))
        except OSError:
            return False
        self.memory_bytes.append(pages * os.sysconf("SC_PAGESIZE"))
        self.files.append(files)
        return True
