"""Inference rules that a user switches off."""

from tracekit.messages.model import error, name_templates

RULE_UNKNOWN = error("There is no inference rule {name!r}.", "The rules are {known:list}.")

name_templates(globals())
