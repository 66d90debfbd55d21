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
    "A sequence of a decode batch has {queries_per_sequence:number} tokens: with speculative decoding those accepted "
    "divide its time.",
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
