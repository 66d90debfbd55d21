"""Inference rules that a user switches off."""

from tracekit.messages.model import Severity, Template

RULE_UNKNOWN = Template(
    "rule-unknown", Severity.ERROR, "There is no inference rule {name!r}.", "The rules are {known:list}."
)
