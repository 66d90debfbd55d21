"""The scoreboard: how predictions came out on this machine, kept where the user asks for it."""

from tracekit.scoreboard.outcome import Forecast, Outcome
from tracekit.scoreboard.store import Scoreboard, get_file, keep, load

__all__ = ["Forecast", "Outcome", "Scoreboard", "get_file", "keep", "load"]
