"""Request of how a served model does under a load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tracekit.bounds import MAX_COUNT
from tracekit.errors import RequestError
from tracekit.messages import requests
from tracekit.messages import serving as messages
from tracekit.request.option import Option, Panel, Request, split_values
from tracekit.request.options.layout import EXPERT_PARALLEL, PIPELINE_PARALLEL, TENSOR_PARALLEL
from tracekit.request.options.run import SOURCE_GPU, check_framework, parse_time_us
from tracekit.request.options.target import TARGET_GPUS, read_prices

if TYPE_CHECKING:
    from tracekit.prediction.cost import GivenPrices

MAX_TOKENS = 2**27
MAX_CONCURRENCY = 1024
DEFAULT_ENGINE, DEFAULT_TOKENS = "vllm", 1024


@dataclass(frozen=True, kw_only=True)
class ServingRequest(Request):
    """A served model under a load."""

    panel = Panel.TARGET

    gpu: Annotated[str | Sequence[str], TARGET_GPUS] = ()
    cluster: Annotated[
        str | Sequence[str],
        Option("Target cluster, such as 8xh100-sxm, or a TOML. `tracekit clusters` lists them.", "Clusters"),
    ] = ()
    price: Annotated[
        Mapping[str, float] | str | Sequence[str],
        Option(
            "Dollars for an hour of one GPU, such as h100-sxm=2.49; of the only target 2.49.",
            "Prices of GPUs",
            "[GPU=]DOLLARS",
        ),
    ] = ()
    source_gpu: Annotated[str | None, SOURCE_GPU] = None
    framework: Annotated[
        str | None,
        Option(
            "The engine, with its version: vllm (default), sglang or trtllm, such as vllm==0.19.0.",
            "Serving engine and version",
            "NAME[==VERSION]",
            panel=Panel.ENGINE,
        ),
    ] = None
    tp: Annotated[int | None, TENSOR_PARALLEL] = None
    pp: Annotated[int | None, PIPELINE_PARALLEL] = None
    ep: Annotated[int | None, EXPERT_PARALLEL] = None
    all2all_backend: Annotated[
        str | None,
        Option(
            "What exchanges the tokens of experts where {--ep} is larger than {--tp}: allgather_reducescatter "
            "(default), deepep (normal mode for prompts, low-latency mode where a step only decodes), "
            "deepep_high_throughput or deepep_low_latency.",
            "Exchange of experts' tokens",
            "NAME",
            panel=Panel.LAYOUT,
        ),
    ] = None
    precision: Annotated[
        str | None,
        Option(
            "Format of the weights' products: bf16, fp16, fp8, fp8_block, nvfp4, int4 or mxfp4; default as the config "
            "says.",
            "Precision of the weights",
            "TYPE",
            panel=Panel.ENGINE,
        ),
    ] = None
    cache_type: Annotated[
        str | None,
        Option(
            "Format of keys and values in the cache: bf16 (default), fp16, fp8, fp8_block, nvfp4 or int4.",
            "Precision of the cache",
            "TYPE",
            panel=Panel.ENGINE,
        ),
    ] = None
    concurrency: Annotated[
        int | Sequence[int],
        Option(
            "Requests under way at any time: each is sent when another ends.",
            "Requests at once",
            "N",
            minimum=1,
            maximum=MAX_CONCURRENCY,
            panel=Panel.INPUT,
        ),
    ] = ()
    rate: Annotated[
        float | None,
        Option(
            "Requests a second, which come at random.",
            "Requests a second",
            "R",
            minimum=1e-3,
            maximum=1e6,
            panel=Panel.INPUT,
        ),
    ] = None
    input_tokens: Annotated[
        int | None,
        Option(
            "Tokens of each prompt, default 1024.",
            "Tokens of a prompt",
            "N",
            minimum=1,
            maximum=MAX_TOKENS,
            panel=Panel.INPUT,
        ),
    ] = None
    output_tokens: Annotated[
        int | None,
        Option(
            "Tokens of each answer, default 1024.",
            "Tokens of an answer",
            "N",
            minimum=1,
            maximum=MAX_TOKENS,
            panel=Panel.INPUT,
        ),
    ] = None
    lengths: Annotated[
        str | None,
        Option(
            "A CSV of requests in order, with the columns input and output, in tokens, and maybe arrival, in seconds: "
            "they are sent then, where no load is given.",
            "Lengths of requests",
            "FILE",
            panel=Panel.INPUT,
        ),
    ] = None
    spread: Annotated[
        float | None,
        Option(
            "Fraction by which a length may be shorter at random: 0.2 is 80 to 100 % of it; default 0.",
            "Spread of lengths",
            "FRACTION",
            minimum=0,
            maximum=0.99,
            panel=Panel.INPUT,
        ),
    ] = None
    requests: Annotated[
        int | None,
        Option(
            "Requests to serve; default ten times those at once, 2000 of a rate.",
            "Requests",
            "N",
            minimum=1,
            maximum=100_000,
            panel=Panel.INPUT,
        ),
    ] = None
    prefix_hits: Annotated[
        float | None,
        Option(
            "Fraction of each prompt that the prefix cache holds, default 0.",
            "Prefix cache hits",
            "FRACTION",
            minimum=0,
            maximum=1,
            panel=Panel.INPUT,
        ),
    ] = None
    draft_tokens: Annotated[
        int | None,
        Option(
            "Speculative decoding: tokens that a step verifies beyond the next one.",
            "Draft tokens",
            "N",
            minimum=1,
            maximum=64,
            panel=Panel.ENGINE,
        ),
    ] = None
    accepted_tokens: Annotated[
        float | None,
        Option(
            "Speculative decoding: tokens that a sequence gets in a step on average.",
            "Accepted tokens per sequence",
            "N",
            minimum=1,
            maximum=65,
            panel=Panel.ENGINE,
        ),
    ] = None
    ttft_below: Annotated[
        str | None,
        Option(
            "Longest time to the first token, such as 500ms: asks for the largest load that meets it.",
            "Limit of time to first token",
            "TIME",
        ),
    ] = None
    tpot_below: Annotated[
        str | None,
        Option(
            "Longest time for each token after the first, such as 30ms: likewise.", "Limit of time per token", "TIME"
        ),
    ] = None
    percentile: Annotated[
        int | None,
        Option(
            "Percentile of requests that meets the limits: 50, 90, 95 (default) or 99.",
            "Percentile of the limits",
            "P",
            minimum=1,
            maximum=99,
        ),
    ] = None
    apart: Annotated[
        str | None,
        Option(
            "Engines that prefill and engines that decode, apart (disaggregated), such as 1:3; with {--rate}.",
            "Prefill and decode apart",
            "P:D",
            panel=Panel.LAYOUT,
        ),
    ] = None
    cache_link: Annotated[
        float | None,
        Option(
            "Rate at which each GPU passes its part of the cache on then, in GB/s, default 50.",
            "Link of the cache",
            "GBPS",
            minimum=0.1,
            maximum=1e5,
            panel=Panel.LAYOUT,
        ),
    ] = None
    max_batched_tokens: Annotated[
        int | None,
        Option(
            "New tokens of a step at most; default as the engine has it.",
            "Tokens of a step",
            "N",
            minimum=1,
            maximum=MAX_COUNT,
            panel=Panel.ENGINE,
        ),
    ] = None
    max_sequences: Annotated[
        int | None,
        Option(
            "Sequences that run at once at most; default as the engine has it.",
            "Sequences of a step",
            "N",
            minimum=1,
            maximum=MAX_CONCURRENCY,
            panel=Panel.ENGINE,
        ),
    ] = None
    memory_share: Annotated[
        float | None,
        Option(
            "Fraction of a GPU's memory that the engine takes; default as the engine has it.",
            "Share of the memory",
            "FRACTION",
            minimum=0.05,
            maximum=1,
            panel=Panel.ENGINE,
        ),
    ] = None

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """The numbers of requests at once."""
        return split_values(self.concurrency)

    @property
    def given_prices(self) -> "GivenPrices":
        """The prices.

        Raises:
            RequestError: One can't be read.
        """
        return read_prices(self.price, None)

    @property
    def replicas(self) -> tuple[int, int] | None:
        """The engines that prefill and those that decode.

        Raises:
            RequestError: The text isn't two numbers.
        """
        if self.apart is None:
            return None
        first, _, second = self.apart.partition(":")
        if not (
            first.strip().isdecimal() and second.strip().isdecimal() and 0 < int(first) <= 64 and 0 < int(second) <= 64
        ):
            raise RequestError(messages.SERVING_DISAGGREGATED(given=self.apart))
        return int(first), int(second)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.prediction.targets import resolve_gpu_name, resolve_targets

        super().check()
        targets = resolve_targets(split_values(self.gpu), split_values(self.cluster), unlike_gpus=False)
        if cpu := next((one.gpu.gpu.slug for one in targets if one.gpu.gpu.is_cpu), None):
            raise RequestError(requests.CPU_WITHOUT_ENGINE(engine=self.framework or DEFAULT_ENGINE, cpu=cpu))
        if self.source_gpu is not None:
            resolve_gpu_name(self.source_gpu)
        self.given_prices.check()
        if self.framework is not None:
            check_framework(self.framework)
        if self.concurrencies and self.rate is not None:
            raise RequestError(messages.SERVING_LOAD_TWICE())
        if self.lengths is not None and (self.input_tokens is not None or self.output_tokens is not None):
            raise RequestError(messages.SERVING_LENGTHS_TWICE())
        if self.replicas and self.concurrencies:
            raise RequestError(messages.SERVING_APART_AT_ONCE())
        self._check_formats()
        self._check_speculation()
        for time in (self.ttft_below, self.tpot_below):
            if time is not None:
                parse_time_us(time)

    def _check_formats(self) -> None:
        from tracekit.served.precision import check_backend, check_formats
        from tracekit.served.simulate import PERCENTILES

        check_formats(self.precision, self.cache_type)
        check_backend(self.all2all_backend)
        if self.percentile is not None and self.percentile not in PERCENTILES:
            raise RequestError(messages.SERVING_PERCENTILE(given=self.percentile, known=list(PERCENTILES)))

    def _check_speculation(self) -> None:
        drafted, accepted = self.draft_tokens or 0, self.accepted_tokens
        if (drafted and accepted is None) or (accepted or 1.0) > drafted + 1:
            raise RequestError(messages.SERVING_DRAFT(accepted=accepted or 1.0, drafted=drafted))
