"""The figures of a step, measured or predicted: each is declared once, and every form has it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from tracekit.format import format_duration
from tracekit.prediction.energy import StepEnergy
from tracekit.prediction.model import PredictedStep
from tracekit.replay.step_time import StepTime
from tracekit.reporting.columns import Column
from tracekit.reporting.figure import Figure
from tracekit.reporting.sections.serving import ServedWork, ServingSpeed
from tracekit.reporting.sections.step import SourceSummary

Number = float | None


def format_figure_ms(figure: Figure) -> str:
    """Format a time in ms."""
    return format_duration(1e3 * figure.likely)


@dataclass(frozen=True, slots=True)
class StepRow:
    """The measured step, or a predicted one.

    Tables and JSON have each figure by its name; its docstring is the meaning. One whose column has a heading, as in
    ``Column(heading="power")``, stands on the screen, in Markdown and on the page, too.
    """

    of: SourceSummary | PredictedStep

    @property
    def _target(self) -> PredictedStep | None:
        return self.of if isinstance(self.of, PredictedStep) else None

    @property
    def _times(self) -> SourceSummary | StepTime:
        return self.of.step if isinstance(self.of, PredictedStep) else self.of

    def _draw(self, get: Callable[[StepEnergy], float]) -> Number:
        return get(self.of.energy) if self.of.energy else None

    @property
    def _speed(self) -> ServingSpeed | None:
        """What the step is in the words of serving; None where no engine's batch is known."""
        batch, target, times = self.of.batch, self._target, self._times
        if batch is None or batch.phase is None:
            return None
        likely, *ends = batch.accepted or (1.0, 1.0, 1.0)
        work = ServedWork(batch.phase, Figure(batch.size, *batch.ends), Figure(likely, *ends))
        step, mean = Figure.from_exact(times.step_time_us), Figure.from_exact(times.mean_us)
        if target:
            step = Figure(step.likely, target.low_us, target.high_us)
            mean = Figure(mean.likely, target.mean_low_us, target.mean_high_us)
        return work.build_speed("", self.of.gpus, step, mean)

    @property
    def gpu(self) -> Annotated[str | None, Column()]:
        """The GPU."""
        return self._target.label if self._target else self.of.gpu

    @property
    def origin(self) -> Annotated[str, Column(name="from")]:
        """measured, captured or predicted."""
        return self.of.label if isinstance(self.of, SourceSummary) else "predicted"

    @property
    def step_time_us(self) -> Annotated[float, Column()]:
        """Median step."""
        return self._times.step_time_us

    @property
    def low_us(self) -> Annotated[Number, Column()]:
        """Lower end of the step's 90 % interval."""
        return self._target.low_us if self._target else None

    @property
    def high_us(self) -> Annotated[Number, Column()]:
        """Upper end."""
        return self._target.high_us if self._target else None

    @property
    def speedup(self) -> Annotated[Number, Column()]:
        """Measured step time over predicted; blank of a program that never ran."""
        return self._target.speedup if self._target else None

    @property
    def speedup_per_sample(self) -> Annotated[Number, Column()]:
        """The same per sample, where the batch differs."""
        return self._target.speedup_per_sample if self._target else None

    @property
    def kernel_time_us(self) -> Annotated[float, Column()]:
        """Time in which the GPU is busy."""
        return self._times.kernel_time_us

    @property
    def exposed_comm_us(self) -> Annotated[float, Column()]:
        """The part of it in which only collectives run."""
        return self._times.exposed_comm_us

    @property
    def idle_us(self) -> Annotated[float, Column()]:
        """Time in which the GPU is idle."""
        return self._times.idle_us

    @property
    def modelled_pct(self) -> Annotated[Number, Column()]:
        """Kernel time predicted from shapes, percent."""
        return self._target.coverage.modelled if self._target else None

    @property
    def scaled_pct(self) -> Annotated[Number, Column()]:
        """Kernel time scaled by the resource that limits such kernels."""
        return self._target.coverage.scaled if self._target else None

    @property
    def unknown_pct(self) -> Annotated[Number, Column()]:
        """Kernel time kept as measured."""
        return self._target.coverage.unknown if self._target else None

    @property
    def inferred_pct(self) -> Annotated[Number, Column()]:
        """Kernel time of GEMMs inferred from tiles, grids and measured times."""
        return self._target.coverage.inferred if self._target else None

    @property
    def dollars_per_1000_steps(self) -> Annotated[Number, Column()]:
        """Cost on all GPUs in use, where their price was given."""
        return self.of.dollars_per_1000_steps

    @property
    def dollars_per_1000_traced_steps(self) -> Annotated[Number, Column()]:
        """The same for as many samples as 1,000 traced steps have."""
        return self._target.dollars_per_1000_traced_steps if self._target else None

    @property
    def samples(self) -> Annotated[Number, Column()]:
        """Samples or tokens of the job in a step, where the trace tells."""
        return self.of.batch.size if self.of.batch else None

    @property
    def unit(self) -> Annotated[str | None, Column()]:
        """Whether these are samples or tokens."""
        return self.of.batch.unit if self.of.batch else None

    @property
    def per_second(self) -> Annotated[Number, Column()]:
        """Throughput of the job in samples or tokens per second."""
        return self.of.per_second

    @property
    def tpot_ms(self) -> Annotated[Figure | None, Column(heading="TPOT", show=format_figure_ms)]:
        """Time per output token of a serving engine's step that decodes, in ms."""
        time_us = self._speed.output_token_us if self._speed else None
        return time_us.scale(1e-3) if time_us else None

    @property
    def ttft_ms(self) -> Annotated[Figure | None, Column(heading="TTFT", show=format_figure_ms)]:
        """Time to first token of a serving engine's step with prompts, in ms, without queueing."""
        time_us = self._speed.first_token_us if self._speed else None
        return time_us.scale(1e-3) if time_us else None

    @property
    def tokens_per_s(self) -> Annotated[Figure | None, Column()]:
        """Tokens a second of a serving engine's step: of prompts, and of output."""
        return self._speed.tokens_per_s if self._speed else None

    @property
    def dollars_per_million(self) -> Annotated[Number, Column()]:
        """Cost of a million samples or tokens on all GPUs in use, where their price was given."""
        return self.of.dollars_per_million

    @property
    def mfu(self) -> Annotated[Number, Column()]:
        """Percent of the step that its products take at the GPU's peak."""
        return self.of.mfu

    @property
    def hfu(self) -> Annotated[Number, Column()]:
        """The same with products that are computed again."""
        return self.of.hfu

    @property
    def energy_j(self) -> Annotated[Number, Column()]:
        """Estimated energy of the step on one GPU, in joules."""
        return self._draw(lambda energy: energy.joules)

    @property
    def energy_low_j(self) -> Annotated[Number, Column()]:
        """Lower end of its 90 % interval."""
        return self._draw(lambda energy: energy.low_joules)

    @property
    def energy_high_j(self) -> Annotated[Number, Column()]:
        """Upper end."""
        return self._draw(lambda energy: energy.high_joules)

    @property
    def power_w(self) -> Annotated[Number, Column()]:
        """Mean power of one GPU's board, in watts."""
        return self._draw(lambda energy: energy.power_w)

    @property
    def joules_per_unit(self) -> Annotated[Number, Column()]:
        """Joules for a sample or token on all GPUs in use."""
        return self.of.joules_per_unit if self.of.energy else None

    @property
    def fits_in_memory(self) -> Annotated[bool | None, Column()]:
        """Whether a rank fits into memory; blank where that isn't known."""
        return self._target.memory.fits if self._target else None
