"""Inference rules: each has a name, its evidence, and can be switched off."""

from dataclasses import dataclass
from typing import TypeAlias

RuleNames: TypeAlias = frozenset[str]
"""Names of rules that are switched off."""

NO_RULES: RuleNames = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that infers what a trace does not record.

    Attributes:
        name: By which it is switched off.
        summary: What it infers, one sentence.
        evidence: The traces that show it, and what the result is off without it.
    """

    name: str
    summary: str
    evidence: str

    def is_on(self, without: RuleNames) -> bool:
        """Return whether the rule is on, given the names of those that are off."""
        return self.name not in without
