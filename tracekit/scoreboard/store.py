"""Outcomes on this machine: a file with a line of JSON for each."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from predictors.given_files import describe_failure, read_regular_file
from tracekit.bounds import MAX_SCOREBOARD_BYTES
from tracekit.errors import OutputError, TracekitError
from tracekit.messages import Message
from tracekit.messages import predictions as messages
from tracekit.scoreboard.outcome import Outcome, PredictionGroup


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """Outcomes.

    Attributes:
        outcomes: The outcomes, oldest first.
        warnings: What couldn't be read.
    """

    outcomes: tuple[Outcome, ...] = ()
    warnings: tuple[Message, ...] = ()

    def select(self, group: PredictionGroup, weights: str) -> tuple[Outcome, ...]:
        """Return the outcomes of a group of predictions by the same weights; others have errors of their own."""
        return tuple(one for one in self.outcomes if one.group == group and one.weights == weights)


def get_file() -> Path:
    """Return the file of the outcomes."""
    import platformdirs

    return Path(platformdirs.user_data_dir("tracekit", appauthor=False)) / "scoreboard.jsonl"


def load() -> Scoreboard:
    """Load the outcomes that are kept on this machine; damaged lines are skipped with a warning."""
    path = get_file()
    try:
        content = read_regular_file(path, MAX_SCOREBOARD_BYTES)
    except FileNotFoundError:
        return Scoreboard()
    except (OSError, ValueError) as error:
        return Scoreboard(warnings=(messages.SCOREBOARD_UNREADABLE(reason=describe_failure(error)),))
    lines = [line for line in content.splitlines() if line.strip()]
    outcomes = tuple(_decode_lines(lines))
    skipped = len(lines) - len(outcomes)
    warnings = (messages.OUTCOMES_SKIPPED(lines=skipped),) if skipped else ()
    return Scoreboard(outcomes, warnings)


def keep(outcome: Outcome) -> bool:
    """Add an outcome to the file; return whether it is new.

    Raises:
        OutputError: The file can't be written.
    """
    return add_all([outcome]) == 1


def read_outcomes(path: Path) -> tuple[Outcome, ...]:
    """Read the outcomes of a file that ``tracekit scoreboard --export`` wrote, or of a scoreboard's own.

    Raises:
        TracekitError: It can't be read, or holds anything that isn't an outcome.
    """
    try:
        content = read_regular_file(path, MAX_SCOREBOARD_BYTES)
        if path.suffix == ".jsonl":
            return tuple(msgspec.json.Decoder(Outcome).decode_lines(content))
        return tuple(msgspec.json.decode(content, type=_Exported).outcomes)
    except (OSError, ValueError, RecursionError) as error:
        raise TracekitError(messages.OUTCOMES_UNREADABLE(path=str(path), reason=describe_failure(error))) from error


class _Exported(msgspec.Struct):
    """What ``tracekit scoreboard --export outcomes.json`` wrote."""

    outcomes: list[Outcome]


def add_all(outcomes: Iterable[Outcome]) -> int:
    """Add outcomes to the file; return how many are new. The same one on another day isn't.

    They are written at once at the end of the file, so that several processes can add lines.

    Raises:
        OutputError: The file can't be written.
    """
    known = {_encode_undated(one) for one in load().outcomes}
    found = {_encode_undated(one): one for one in outcomes}
    new = [one for key, one in found.items() if key not in known]
    if new:
        _append(b"".join(b"\n" + msgspec.json.encode(one) + b"\n" for one in new))
    return len(new)


def _encode_undated(outcome: Outcome) -> bytes:
    return msgspec.json.encode(replace(outcome, date=""))


def _append(lines: bytes) -> None:
    path = get_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # They begin with a line break: what a crash left of a line ends here.
            os.write(descriptor, lines)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OutputError(messages.OUTCOME_NOT_WRITTEN(path=str(path), reason=error.strerror)) from error


def _decode_lines(lines: Iterable[bytes]) -> Iterable[Outcome]:
    decoder = msgspec.json.Decoder(Outcome)
    for line in lines:
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
