"""The scoreboard: how predictions came out on this machine, kept where the user asks for it."""

from tracekit.scoreboard.outcome import Forecast, LawTime, Outcome
from tracekit.scoreboard.store import Scoreboard, add_all, get_file, keep, load, read_outcomes

__all__ = ["Forecast", "LawTime", "Outcome", "Scoreboard", "add_all", "get_file", "keep", "load", "read_outcomes"]
