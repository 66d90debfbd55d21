"""What a request asks of all targets, resolved: names are GPUs, texts are numbers, files are read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit import calibration
from tracekit import scoreboard as outcomes
from tracekit.errors import RequestError
from tracekit.hosts import measure_host_speed
from tracekit.ingest import load
from tracekit.messages import requests as messages
from tracekit.prediction.clock import parse_clock, parse_power_cap, parse_source_clock
from tracekit.prediction.cost import UNPRICED, Prices
from tracekit.prediction.job import Job
from tracekit.prediction.model import Target
from tracekit.prediction.predictor import Predictor, SourceClock
from tracekit.prediction.source_cluster import (
    UNKNOWN_CLUSTER,
    SourceCluster,
    fill_source_gpu,
    identify_needed_cluster,
)
from tracekit.prediction.target_host import UNKNOWN, parse_host
from tracekit.prediction.targets import assume_usual_links, check_cpus, resolve_prices, resolve_targets
from tracekit.run import MeasuredRun

if TYPE_CHECKING:
    from tracekit.request.options import TargetOptions


@dataclass(frozen=True, slots=True)
class PredictionSettings:
    """What a request asks of all targets of a run.

    Attributes:
        source: Where the run was recorded.
        prices: Dollars for an hour of one GPU.
        calibrations: Kernels that were measured on this machine.
        scoreboard: Outcomes of earlier predictions.
        host: Host that is predicted for.
        power_cap_w: Power limit of each target's GPUs; None for their own.
        clock_mhz: Clock of each target's GPUs; None for their own.
        source_clock_mhz: Mean clock of the run's GPU; None where the trace has to tell.
    """

    source: SourceCluster = UNKNOWN_CLUSTER
    prices: Prices = UNPRICED
    calibrations: tuple[calibration.Calibration, ...] = ()
    scoreboard: outcomes.Scoreboard = field(default_factory=outcomes.Scoreboard)
    host: str | float = UNKNOWN
    power_cap_w: float | None = None
    clock_mhz: float | None = None
    source_clock_mhz: float | None = None

    def make_predictor(self, job: Job, traced: Job) -> Predictor:
        """Make the predictor of a job; ``traced`` is that job without what a request changes."""
        return Predictor(
            job,
            source=self.source,
            prices=self.prices,
            calibrations=self.calibrations,
            source_clock=SourceClock(traced, self.source_clock_mhz),
            host=self.host,
            power_cap_w=self.power_cap_w,
            clock_mhz=self.clock_mhz,
            scoreboard=self.scoreboard,
        )


def resolve_places(request: "TargetOptions", run: MeasuredRun) -> tuple[MeasuredRun, tuple[Target, ...], SourceCluster]:
    """Resolve the targets of a request, and where a run was recorded; return the run with its GPU from there, too.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster is unknown or its name wrong.
        RequestError: CPUs can't run what is asked.
    """
    wanted = assume_usual_links(resolve_targets(request.gpus, request.clusters), run)
    hosted = request.host_from is not None or request.host != UNKNOWN
    check_cpus(
        wanted, run, {"power-cap": request.power_cap is not None, "clock": request.clock is not None, "host": hosted}
    )
    source = identify_needed_cluster(run, request.source_cluster, request.clusters, wanted)
    return fill_source_gpu(run, source), wanted, source


def resolve_settings(
    request: "TargetOptions", run: MeasuredRun, source: SourceCluster, wanted: Sequence[Target]
) -> PredictionSettings:
    """Resolve what a request asks of all its targets.

    Args:
        request: The request.
        run: The measured run.
        source: Where it was recorded.
        wanted: The targets.

    Raises:
        PredictorError: The name of a price may mean several GPUs.
        CalibrationError: A calibration can't be read.
        RequestError: A price is no price, the host, the power limit or a clock none, or the trace of a host tells none.
    """
    return PredictionSettings(
        source=source,
        prices=resolve_prices(request.given_prices, run.gpu, source.shown, wanted),
        calibrations=() if request.no_calibration else tuple(calibration.load_all()),
        scoreboard=outcomes.Scoreboard() if request.no_scoreboard else outcomes.load(),
        host=find_host(request),
        power_cap_w=parse_power_cap(request.power_cap),
        clock_mhz=parse_clock(request.clock),
        source_clock_mhz=parse_source_clock(request.source_clock, run.gpu),
    )


def find_host(request: "TargetOptions") -> str | float:
    """Find the host to predict for; one that a trace tells is measured.

    Raises:
        RequestError: The trace doesn't tell it, or the host is none.
    """
    if request.host_from is None or not (request.gpus or request.clusters):
        return parse_host(request.host)
    host = measure_host_speed(load(request.host_from).ranks)
    if host is None:
        raise RequestError(messages.HOST_FROM_UNKNOWN(path=request.host_from))
    return host.speed
