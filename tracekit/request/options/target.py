"""Options of where a step is predicted, what that costs, and what is to be decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.request.option import Option, Panel, Request, split_values

if TYPE_CHECKING:
    from tracekit.prediction.cost import GivenPrices
    from tracekit.prediction.question import Question

MIN_SAMPLES, MAX_SAMPLES = 1e-6, 1e12
TARGET_GPUS = Option(
    "Target GPU, or datacenter, consumer, all. `tracekit gpus` lists them.", "GPUs", "NAME", short="-g"
)


def read_prices(price: Mapping[str, float] | str | Sequence[str], path: str | None) -> "GivenPrices":
    """Read prices as an option gives them, and those of a file.

    Raises:
        RequestError: One can't be read.
    """
    from tracekit.prediction.cost import GivenPrices, parse_prices, read_price_file

    file = None if path is None else read_price_file(path)
    return GivenPrices(price, file=file) if isinstance(price, Mapping) else parse_prices(split_values(price), file)


@dataclass(frozen=True, kw_only=True)
class TargetOptions(Request):
    """Where the step is predicted, and what that costs."""

    panel = Panel.TARGET

    gpu: Annotated[
        str | Sequence[str],
        TARGET_GPUS,
    ] = ()
    cluster: Annotated[
        str | Sequence[str],
        Option(
            "Target cluster, such as 4x8xh100-sxm@ndr400, 4xh100-sxm+4xa100-sxm-80gb@eth100 or a TOML. "
            "`tracekit clusters` lists them.",
            "Clusters",
        ),
    ] = ()
    source_cluster: Annotated[
        str | None, Option("The cluster of the trace, where its GPU doesn't tell.", "Cluster of the trace")
    ] = None
    price: Annotated[
        Mapping[str, float] | str | Sequence[str],
        Option(
            "Dollars for an hour of one GPU of trace or target, such as h100-sxm=2.49; of a whole instance, p5=55; of "
            "the only target 2.49.",
            "Prices of GPUs",
            "[GPU=]DOLLARS",
        ),
    ] = ()
    prices: Annotated[
        str | None,
        Option(
            "A file of such prices: TOML with date = 2026-11-01 and a table dollars_an_hour.",
            "File of prices",
            "FILE",
        ),
    ] = None
    samples: Annotated[
        float | None,
        Option(
            "Samples per rank in a traced step, where the trace doesn't tell.",
            "Samples per rank and step",
            "N",
            minimum=MIN_SAMPLES,
            maximum=MAX_SAMPLES,
        ),
    ] = None
    host: Annotated[
        float | str,
        Option(
            "The target's CPU: unknown (default), same, typical beside that GPU, one of `tracekit hosts`, or a speed.",
            "Host (CPU) of the target",
            "HOST",
        ),
    ] = "unknown"
    host_from: Annotated[
        str | None,
        Option("A trace of any job on the target's machine: predicts for its CPU.", "Trace of that host", "TRACE"),
    ] = None
    power_cap: Annotated[
        float | str | None, Option("Power limit of each target GPU, such as 500W.", "Power limit of a GPU", "WATTS")
    ] = None
    clock: Annotated[
        float | str | None,
        Option("Clock that each target GPU is held at, such as 1200MHz.", "Clock of a GPU", "MHZ"),
    ] = None
    source_clock: Annotated[
        float | str | None,
        Option("Mean clock of the trace's GPU meanwhile, such as 1350MHz.", "Clock of the trace's GPU", "MHZ"),
    ] = None
    no_calibration: Annotated[
        bool, Option("Leave out what `tracekit calibrate` keeps on this machine.", "Leave out calibrations")
    ] = False
    no_scoreboard: Annotated[
        bool,
        Option("Leave out the outcomes that `tracekit compare --keep` keeps on this machine.", "Leave out outcomes"),
    ] = False

    @property
    def gpus(self) -> tuple[str, ...]:
        """The target GPUs."""
        return split_values(self.gpu)

    @property
    def clusters(self) -> tuple[str, ...]:
        """The target clusters."""
        return split_values(self.cluster)

    @property
    def given_prices(self) -> "GivenPrices":
        """The prices, of the option and of the file.

        Raises:
            RequestError: One can't be read.
        """
        return read_prices(self.price, self.prices)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.comm import load_cluster
        from tracekit.prediction.clock import (
            parse_clock,
            parse_power_cap,
            parse_source_clock,
            resolve_clock,
            resolve_power_cap,
        )
        from tracekit.prediction.target_host import UNKNOWN, parse_host
        from tracekit.prediction.targets import resolve_targets

        super().check()
        cap_w, clock_mhz = parse_power_cap(self.power_cap), parse_clock(self.clock)
        parse_source_clock(self.source_clock, None)
        for target in resolve_targets(self.gpus, self.clusters):
            resolve_power_cap(cap_w, target.gpu.gpu)
            resolve_clock(clock_mhz, target.gpu.gpu)
        if self.source_cluster is not None:
            load_cluster(self.source_cluster)
        if parse_host(self.host) != UNKNOWN and self.host_from is not None:
            raise RequestError(messages.HOST_GIVEN_TWICE())
        self.given_prices.check()

    def require_target(self) -> None:
        """Refuse a request without a target.

        Raises:
            RequestError: There is none.
        """
        if not self.gpus and not self.clusters:
            raise RequestError(messages.NO_TARGET())


@dataclass(frozen=True, kw_only=True)
class ConvergenceOptions(Request):
    """What a larger batch costs in convergence."""

    panel = Panel.TARGET

    critical_batch: Annotated[
        float | str | None,
        Option(
            "Gradient noise scale of the job, in samples or tokens of a step of all ranks, such as 1.5M; or a .csv of "
            "gradient norms at two batch sizes: larger batches then need more work to the same loss.",
            "Critical batch",
            "N|FILE",
        ),
    ] = None

    @property
    def noise_scale(self) -> float | None:
        """The gradient noise scale; None where every batch is taken to need the same work.

        Raises:
            RequestError: It is none, or the log tells none.
        """
        from tracekit.prediction.critical_batch import parse_critical_batch

        return None if self.critical_batch is None else parse_critical_batch(self.critical_batch)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.noise_scale


@dataclass(frozen=True, kw_only=True)
class DecisionOptions(ConvergenceOptions):
    """What is to be decided between trace and targets."""

    panel = Panel.TARGET

    rank_by: Annotated[
        str | None,
        Option(
            "What targets are ranked by, for equal work: time, dollars (the default where all have a price), "
            "tokens-per-dollar or energy.",
            "Rank by",
            "FIGURE",
        ),
    ] = None
    steps_to_run: Annotated[
        float | str | None,
        Option("Steps of the whole job, as traced, such as 300k: tells its hours and dollars.", "Steps to run", "N"),
    ] = None
    tokens_to_run: Annotated[
        float | str | None,
        Option("Tokens of the whole job, such as 2B: tells its hours and dollars.", "Tokens to run", "N"),
    ] = None
    samples_to_run: Annotated[
        float | str | None,
        Option("Samples of the whole job, such as 90M: tells its hours and dollars.", "Samples to run", "N"),
    ] = None

    @property
    def question(self) -> "Question":
        """What is to be decided.

        Raises:
            RequestError: A figure is unknown, or the length of the job none or given twice.
        """
        from tracekit.prediction.question import Question, RankBy, WholeRun, parse_amount

        if self.rank_by is not None and self.rank_by not in list(RankBy):
            raise RequestError(messages.RANK_BY_UNKNOWN(given=self.rank_by, known=[one.value for one in RankBy]))
        lengths = {"steps": self.steps_to_run, "tokens": self.tokens_to_run, "samples": self.samples_to_run}
        runs = []
        for unit, given in lengths.items():
            if given is None:
                continue
            amount = parse_amount(given if isinstance(given, str) else f"{given:.15g}")
            if amount is None:
                raise RequestError(messages.RUN_LENGTH_MALFORMED(option=f"{unit} to run", given=str(given)))
            runs.append(WholeRun(amount, unit))
        if len(runs) > 1:
            raise RequestError(messages.RUN_LENGTH_GIVEN_TWICE())
        if self.critical_batch is not None and not runs:
            raise RequestError(messages.CRITICAL_BATCH_WITHOUT_RUN())
        rank_by = None if self.rank_by is None else RankBy(self.rank_by)
        return Question(rank_by, runs[0] if runs else None, self.noise_scale)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.question
