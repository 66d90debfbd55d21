"""Diagnose what a trace lacks for a good prediction: checks, their costs, a grade, and how to record a better trace."""

from tracekit.doctor.examine import examine
from tracekit.doctor.model import Check, Diagnosis, Status

__all__ = ["Check", "Diagnosis", "Status", "examine"]
