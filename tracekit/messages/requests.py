"""Requests that are refused before a trace is read."""

from tracekit.messages.model import Severity, Template

OPTION_VALUE = Template("option-value", Severity.ERROR, "{option} can't be {given}.", "Give {expected}.")
NO_TARGET = Template(
    "no-target",
    Severity.ERROR,
    "No target is named.",
    "Say where to: {--gpu} h100-sxm, {--cluster} 4x8xh100-sxm@ndr400, or both.",
)
STEPS_NOT_A_RANGE = Template(
    "steps-not-a-range", Severity.ERROR, "{--steps}: {steps!r} is no step.", "Give a number or a range, such as 7:9."
)
PRICE_NOT_A_PAIR = Template(
    "price-not-a-pair", Severity.ERROR, "{--price}: {price!r} is no price.", "Write it as h100-sxm=2.49."
)
PRICE_NOT_DOLLARS = Template(
    "price-not-dollars", Severity.ERROR, "An hour of {gpu} can't cost {given} dollars.", "Give a number, 0 or more."
)
PRICES_DIFFER = Template(
    "prices-differ", Severity.ERROR, "{gpu} has two prices, {first:g} and {second:g} dollars.", "Give it one."
)
PRICE_WITHOUT_NAME = Template(
    "price-without-name",
    Severity.ERROR,
    "{--price}: {price:g} dollars could be the price of {targets:list}.",
    "Say whose it is: h100-sxm=2.49.",
)
PRICE_FILE_INVALID = Template(
    "price-file-invalid",
    Severity.ERROR,
    "{--prices} {path}: {reason}.",
    'Write date = 2026-11-01, then [dollars_an_hour] and lines such as h100-sxm = 2.49 or "A100 SXM 80GB" = 1.29.',
)
RANK_BY_UNKNOWN = Template(
    "rank-by-unknown", Severity.ERROR, "{--rank-by}: targets aren't ranked by {given!r}.", "Give {known:list}."
)
RANK_BY_WITHOUT_PRICE = Template(
    "rank-by-without-price",
    Severity.ERROR,
    "{--rank-by} {ranked_by}: no target has a price.",
    "Give some with {--price} or {--prices}.",
)
RUN_LENGTH_MALFORMED = Template(
    "run-length-malformed",
    Severity.ERROR,
    "{option} {given!r} is no amount of work.",
    "Give a number above 0, such as 50000, 300k, 2B or 1e9.",
)
RUN_LENGTH_GIVEN_TWICE = Template(
    "run-length-given-twice",
    Severity.ERROR,
    "{--steps-to-run}, {--tokens-to-run} and {--samples-to-run} each say how long the job runs.",
    "Give one of them.",
)
RUN_UNIT_UNKNOWN = Template(
    "run-unit-unknown",
    Severity.ERROR,
    "The trace doesn't tell how many {unit} a step has.",
    "Give steps with {--steps-to-run}, or a rank's samples in a step with {--samples}.",
)
RUN_UNIT_DIFFERS = Template(
    "run-unit-differs",
    Severity.ERROR,
    "A step of this trace is counted in {counted}, not in {unit}.",
    "Give the work in {counted} or steps.",
)
PREDICTIONS_WITH_OPTIONS = Template(
    "predictions-with-options",
    Severity.ERROR,
    "Predictions are reported as they were made; options don't apply.",
    "Give the options to the prediction.",
)
TOKENS_NOT_SPECULATED = Template(
    "tokens-not-speculated",
    Severity.ERROR,
    "No decode batch of the trace has more tokens than sequences, so that none are speculated.",
    "Leave out {--accepted-tokens}.",
)
ACCEPTED_TOKENS_TOO_MANY = Template(
    "accepted-tokens-too-many",
    Severity.ERROR,
    "{--accepted-tokens} {accepted:number}: a decode batch verifies {verified:number} tokens for a sequence.",
    "Give from 1 to as many.",
)
FRAMEWORK_UNKNOWN = Template(
    "framework-unknown",
    Severity.ERROR,
    "{--framework} {framework!r} is no serving engine.",
    "Give vllm, sglang or trtllm, with its version if you know it: vllm==0.19.0.",
)
BATCH_FACTOR_MALFORMED = Template(
    "batch-factor-malformed",
    Severity.ERROR,
    "{batch!r} is no batch.",
    "Give a multiple of the trace's, from {least} to {most}, or max.",
)
HOST_MALFORMED = Template(
    "host-malformed",
    Severity.ERROR,
    "{--host} {host!r} is no host.",
    "Give same, typical, a name that `tracekit hosts` lists, or the speed that `tracekit info` prints of a trace of "
    "that machine: {least:g} to {most:g}.",
)
HOST_BENCH_NEEDS_TORCH = Template(
    "host-bench-needs-torch",
    Severity.ERROR,
    "PyTorch isn't installed here.",
    "Run {--host} where the job's PyTorch is.",
)
POWER_CAP_MALFORMED = Template(
    "power-cap-malformed",
    Severity.ERROR,
    "{--power-cap} {power!r} is no power.",
    "Give watts for one GPU, such as 500W.",
)
POWER_CAP_TOO_LOW = Template(
    "power-cap-too-low",
    Severity.ERROR,
    "{--power-cap} {power:g} W is lower than a {gpu} can be limited to.",
    "Give {least:.0f} to {most:.0f} W.",
)
CLOCK_MALFORMED = Template(
    "clock-malformed",
    Severity.ERROR,
    "{option} {clock!r} is no clock.",
    "Give megahertz, such as 1200MHz.",
)
CLOCK_TOO_LOW = Template(
    "clock-too-low",
    Severity.ERROR,
    "{option} {clock:g} MHz is lower than a {gpu} runs.",
    "Give {least:.0f} to {most:.0f} MHz.",
)
HOST_UNKNOWN = Template(
    "host-unknown",
    Severity.ERROR,
    "{--host} {host} can't be related to the trace's host, whose speed isn't known: it holds too few of PyTorch's ops.",
    "{--host-speed} scales it by a factor.",
)
HOST_GIVEN_TWICE = Template(
    "host-given-twice", Severity.ERROR, "{--host} and {--host-from} each name the target's CPU.", "Give one of them."
)
HOST_FROM_UNKNOWN = Template(
    "host-from-unknown",
    Severity.ERROR,
    "{--host-from} {path}: the speed of its host isn't known: it holds too few of PyTorch's ops, or they disagree.",
    "Record a step of any eager PyTorch job on that machine, with CPU activities.",
)
TIME_WITHOUT_UNIT = Template(
    "time-without-unit", Severity.ERROR, "{--unprofiled-step} {time!r} is no time.", "Give a unit too: 12.3ms."
)
