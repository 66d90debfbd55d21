"""Tables of a serving engine's batches: one for each kind."""

from collections.abc import Iterator

from tracekit.format import format_count, format_duration, format_interval, format_number, format_quantity
from tracekit.reporting.sections.serving import DECODE_KINDS, PREFILL_KINDS, ServedBatches, ServingSpeed

TITLE = "serving"


def describe_batches(served: ServedBatches) -> str:
    """Describe the batches of one kind: ``3 decode batches of 8 sequences, 8 tokens``."""
    counts = ((served.prompts, "prompt"), (served.sequences, "sequence"), (served.tokens, "token"))
    size = ", ".join(format_quantity(round(count), unit) for count, unit in counts if count)
    kind = "" if served.kind == "batch" else f"{served.kind} "
    return f"{format_quantity(served.batches, f'{kind}batch')} of {size}"


def list_headings(served: ServedBatches) -> tuple[str, ...]:
    """Return the headings of :func:`build_rows`, which begin with that of the GPU."""
    is_prefill, is_decode = served.kind in PREFILL_KINDS, served.kind in DECODE_KINDS
    is_shared = not is_prefill or served.accepted is None
    names = [*["first token"] * is_prefill, *["per output token"] * (is_decode and is_shared)]
    latency = " and ".join(names) or "batch"
    return (latency, "90 % interval", "tokens/s", *["per GPU"] * _has_several_gpus(served), *["per user"] * is_decode)


def build_rows(served: ServedBatches) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the measured batch and of each target's."""
    for speed in served.speeds:
        time = speed.batch_us if served.kind in PREFILL_KINDS else speed.output_token_us or speed.batch_us
        span = "" if time.is_exact else format_interval(time.low, time.high)
        yield speed.label, format_duration(time.likely), span, *_format_rates(speed, _has_several_gpus(served))


def _has_several_gpus(served: ServedBatches) -> bool:
    return any(speed.gpus > 1 for speed in served.speeds)


def _format_rates(speed: ServingSpeed, each: bool) -> Iterator[str]:
    rates = [speed.tokens_per_s, *[speed.tokens_per_s_per_gpu] * each, speed.tokens_per_s_per_user]
    for rate in rates:
        if rate is not None:
            yield format_count(rate.likely) if rate.likely >= 100 else format_number(rate.likely)
