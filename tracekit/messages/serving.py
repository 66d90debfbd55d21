"""What the times of a serving engine's batches stand for, and what a trace doesn't tell."""

from tracekit.messages.model import Severity, Template

FIRST_TOKEN_ASSUMED = Template(
    "first-token-assumed",
    Severity.NOTE,
    "The time to first token is that of one batch with the prompt: no queueing, and the whole prompt in it.",
)
OUTPUT_TOKEN_ASSUMED = Template(
    "output-token-assumed",
    Severity.NOTE,
    "The time per output token is that of a batch in which each sequence gets one token; prefill between such batches "
    "adds to it.",
)
TOKENS_SPECULATED = Template(
    "tokens-speculated",
    Severity.NOTE,
    "A decode batch verifies {verified:number} tokens for a sequence (speculative decoding). From 1 to all of them are "
    "accepted: the likely figures are for {accepted:number}.",
    "{--accepted-tokens} tells.",
)
TOKENS_ACCEPTED = Template(
    "tokens-accepted",
    Severity.NOTE,
    "A decode batch verifies {verified:number} tokens for a sequence (speculative decoding); {accepted:number} are "
    "accepted, as given.",
)
ACCEPTANCE_UNKNOWN = Template(
    "acceptance-unknown",
    Severity.WARNING,
    "The trace doesn't tell how many of the speculated tokens are accepted: throughput, dollars and hours are for "
    "{likely:mean token} in a step, and intervals hold {least:mean} to {most:mean}.",
    "{--accepted-tokens} tells.",
)
PREFILL_NOT_TRACED = Template(
    "prefill-not-traced",
    Severity.NOTE,
    "The trace has no batch with a prompt, so that the time to first token isn't known.",
    "Record while prompts arrive.",
)
DECODE_NOT_TRACED = Template(
    "decode-not-traced",
    Severity.NOTE,
    "The trace has no decode batch, so that the time per output token isn't known.",
    "Record while tokens are generated.",
)
