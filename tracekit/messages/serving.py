"""What the times of a serving engine's batches stand for, and what a trace doesn't tell."""

from tracekit.messages.model import name_templates, note, warning

FIRST_TOKEN_ASSUMED = note(
    "The time to first token is that of one batch with the prompt: no queueing, and the whole prompt in it."
)
OUTPUT_TOKEN_ASSUMED = note(
    "The time per output token is that of a batch in which each sequence gets one token; prefill between such batches "
    "adds to it."
)
TOKENS_SPECULATED = note(
    "A decode batch verifies {verified:number} tokens for a sequence (speculative decoding). From 1 to all of them are "
    "accepted: the likely figures are for {accepted:number}.",
    "{--accepted-tokens} tells.",
)
TOKENS_ACCEPTED = note(
    "A decode batch verifies {verified:number} tokens for a sequence (speculative decoding); {accepted:number} are "
    "accepted, as given."
)
ACCEPTANCE_UNKNOWN = warning(
    "The trace doesn't tell how many of the speculated tokens are accepted: throughput, dollars and hours are for "
    "{likely:mean token} in a step, and intervals hold {least:mean} to {most:mean}.",
    "{--accepted-tokens} tells.",
)
PREFILL_NOT_TRACED = note(
    "The trace has no batch with a prompt, so that the time to first token isn't known.", "Record while prompts arrive."
)
DECODE_NOT_TRACED = note(
    "The trace has no decode batch, so that the time per output token isn't known.",
    "Record while tokens are generated.",
)

name_templates(globals())
