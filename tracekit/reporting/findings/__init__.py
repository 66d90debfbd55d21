"""What holds the step back. To add a finding: one file with ``find(run, kernels)``, one line here."""

from collections.abc import Callable, Iterator

import polars as pl

from tracekit.replay.run import Run
from tracekit.reporting.findings import communication, host, work
from tracekit.reporting.findings.model import Finding

Find = Callable[[Run, pl.DataFrame], Iterator[Finding]]

FINDINGS: tuple[Find, ...] = (host.find, communication.find, work.find)
