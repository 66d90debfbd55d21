"""What the shell completes: names of GPUs, clusters, hosts, rules and messages."""

from collections.abc import Callable, Iterable

Completion = Callable[[str], list[str]]
"""Takes what is typed so far."""


def _complete(list_names: Callable[[], Iterable[str]]) -> Completion:
    """Return a completion from names, which are listed only when the shell asks."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in list_names() if name.startswith(incomplete.lower())]

    return complete


def _list_gpus() -> list[str]:
    from predictors import list_gpus

    return list_gpus()


def _list_clusters() -> list[str]:
    from tracekit.comm import list_clusters

    return list_clusters()


def _list_hosts() -> list[str]:
    from tracekit.hosts.known import list_hosts
    from tracekit.prediction.target_host import SAME, TYPICAL, UNKNOWN

    return [UNKNOWN, SAME, TYPICAL, *(host.slug for host in list_hosts())]


def _list_rules() -> list[str]:
    from tracekit.inference_rules import INFERENCE_RULES

    return [rule.name for rule in INFERENCE_RULES]


def _list_subjects() -> list[str]:
    from tracekit.documentation import list_pages
    from tracekit.messages.catalogue import CATALOGUE

    return [*(page.name for page in list_pages()), *CATALOGUE]


complete_subjects = _complete(_list_subjects)
complete_gpus, complete_clusters = _complete(_list_gpus), _complete(_list_clusters)

COMPLETIONS: dict[str, Completion] = {
    "gpu": complete_gpus,
    "source_gpu": complete_gpus,
    "price": _complete(lambda: [f"{gpu}=" for gpu in _list_gpus()]),
    "cluster": complete_clusters,
    "source_cluster": complete_clusters,
    "host": _complete(_list_hosts),
    "framework": _complete(lambda: ("vllm", "sglang", "trtllm")),
    "without_rule": _complete(_list_rules),
}
"""By the name of the field of a request."""
