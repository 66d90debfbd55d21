"""Every sentence that a user reads, by code.

A message is data until a front end renders it: the command line names an option ``--tp``, the web page names the field
of its form, Python names the argument. JSON carries the code and the values beside the text.

To add a message, add a constant to this folder's module of its area, whose name is the message's code::

    GPU_UNKNOWN = note("The source GPU is unknown.", "Name it with {--source-gpu}.")

and use it where it arises: ``notes.append(GPU_UNKNOWN())`` or ``raise TraceError(NO_STEP(step=3))``.
"""

from tracekit.messages.model import (
    Message,
    OptionNames,
    ProgressCallback,
    Severity,
    Template,
    TextEscape,
    Value,
    name_argument,
    name_option,
)

__all__ = [
    "Message",
    "OptionNames",
    "ProgressCallback",
    "Severity",
    "Template",
    "TextEscape",
    "Value",
    "name_argument",
    "name_option",
]
"""The catalogue itself is in :mod:`tracekit.messages.catalogue`: programs that only write messages needn't load it."""
