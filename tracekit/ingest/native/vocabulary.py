"""The scanner's vocabulary: the words of an event as a hash table, with the meaning of each."""

from typing import NamedTuple

import numpy as np

from tracekit.arrays import Bytes, Ints
from tracekit.ingest.fields import ARGUMENTS, INTS, STACK_FIELDS, TABLES, TEXTS, ArgumentKind, select_categories
from tracekit.ingest.native import texts
from tracekit.ingest.native.event_words import ARGUMENT_ROLE, CATEGORY_ROLE, EVENT_KEYS, KEY_ROLE, KIND_OFFSETS, NO_WORD


class Vocabulary(NamedTuple):
    """The words, and the meaning of each as key, category and argument."""

    slots: Ints
    starts: Ints
    arena: Bytes
    meaning: Ints


def build_vocabulary(stacks: bool = False) -> Vocabulary:
    """Build the scanner's vocabulary.

    Args:
        stacks: Whether to read Python calls and the stacks of ops.
    """
    tables = select_categories(stacks)
    known = list(dict.fromkeys((*EVENT_KEYS, *tables, *ARGUMENTS)))
    meaning = np.full((len(known), 3), NO_WORD, np.int64)
    for number, key in enumerate(EVENT_KEYS):
        meaning[known.index(key), KEY_ROLE] = number
    for category, table in tables.items():
        meaning[known.index(category), CATEGORY_ROLE] = list(TABLES).index(table)
    for key, (field, kind) in ARGUMENTS.items():
        if field in STACK_FIELDS and not stacks:
            continue
        meaning[known.index(key), ARGUMENT_ROLE] = KIND_OFFSETS[kind] + (
            INTS if kind is ArgumentKind.INT else TEXTS
        ).index(field)
    words = texts.build_word_table(known)
    return Vocabulary(words.slots, words.starts, words.arena, meaning)
