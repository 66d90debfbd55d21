"""The words that the scanner knows: keys of an event, categories and arguments, as :mod:`fields` describes them."""

from typing import NamedTuple

import numpy as np

from tracekit.arrays import Bytes, Ints
from tracekit.ingest import texts
from tracekit.ingest.fields import ARGUMENTS, INTS, STACK_FIELDS, TABLES, TEXTS, Kind, categories

KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]

KEY, CATEGORY, ARGUMENT = range(3)
"""What a word can stand for: the key of an event, a category's table, an argument's field."""

NO_WORD = -1
KINDS = {Kind.INT: 0, Kind.TEXT: 100, Kind.RAW: 200}


class Vocabulary(NamedTuple):
    """The words, and what each stands for as key, category and argument."""

    slots: Ints
    starts: Ints
    arena: Bytes
    meaning: Ints


def vocabulary(stacks: bool = False) -> Vocabulary:
    """The words, for the scanner.

    Args:
        stacks: Whether Python's calls are read, and the stacks that ops note.
    """
    tables = categories(stacks)
    known = list(dict.fromkeys((*KEYS, *tables, *ARGUMENTS)))
    meaning = np.full((len(known), 3), NO_WORD, np.int64)
    for number, key in enumerate(KEYS):
        meaning[known.index(key), KEY] = number
    for category, table in tables.items():
        meaning[known.index(category), CATEGORY] = list(TABLES).index(table)
    for key, (field, kind) in ARGUMENTS.items():
        if field in STACK_FIELDS and not stacks:
            continue
        meaning[known.index(key), ARGUMENT] = KINDS[kind] + (INTS if kind is Kind.INT else TEXTS).index(field)
    words = texts.of_words(known)
    return Vocabulary(words.slots, words.starts, words.arena, meaning)
