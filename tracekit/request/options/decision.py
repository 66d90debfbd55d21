"""Options of what is to be decided."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.request.option import Option, Panel, Request

if TYPE_CHECKING:
    from tracekit.prediction.question import Question


@dataclass(frozen=True, kw_only=True)
class DecisionOptions(Request):
    """What is to be decided between trace and targets."""

    panel = Panel.TARGET

    rank_by: Annotated[
        str,
        Option(
            "What targets are ranked by, for equal work: time (default), dollars, tokens-per-dollar or energy.",
            "Rank by",
            "FIGURE",
        ),
    ] = "time"
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

        if self.rank_by not in list(RankBy):
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
        return Question(RankBy(self.rank_by), *runs)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.question
