"""Resolve names of GPUs and clusters to targets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import polars as pl

from predictors import Gpu, PredictorError, Resolution, list_gpus, load_gpu, resolve_gpu
from tracekit.comm import Cluster, load_cluster
from tracekit.comm.errors import ClusterError
from tracekit.errors import RequestError
from tracekit.messages import layouts, name_option
from tracekit.messages import requests as messages
from tracekit.prediction.cost import GivenPrices, Prices
from tracekit.prediction.model import Target
from tracekit.prediction.source_cluster import find_usual_nodes
from tracekit.run import MeasuredRun

T = TypeVar("T")


GPU_GROUPS: Mapping[str, Callable[[Gpu], bool]] = {
    "all": lambda gpu: True,
    "datacenter": lambda gpu: gpu.is_datacenter,
    "consumer": lambda gpu: gpu.is_consumer,
}
"""Groups of GPUs, by the names that targets may have."""


def resolve_targets(
    gpus: Sequence[str], clusters: Sequence[str] = (), *, unlike_gpus: bool = True
) -> tuple[Target, ...]:
    """Resolve names to targets: GPUs that no cluster has, then clusters, each once and in the given order.

    Args:
        gpus: Names of GPUs, in any spelling, or of groups of them.
        clusters: Names of clusters.
        unlike_gpus: Whether a cluster may have several kinds of GPUs.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster is unknown or its name wrong, or a GPU's name is a cluster's.
    """
    joined = _deduplicate([load_cluster(name, unlike_gpus=unlike_gpus) for name in clusters], lambda cluster: cluster)
    have = {cluster.gpu.slug for cluster in joined}
    names = [name for one in gpus for name in expand_group(one)]
    named = _deduplicate([resolve_gpu_name(name) for name in names], lambda resolution: resolution.gpu)
    slugs = {resolution.gpu.slug for resolution in named}
    on_clusters = [
        Target(Resolution(cluster.gpu, cluster.gpu.slug, "slug"), cluster, is_gpu_requested=cluster.gpu.slug in slugs)
        for cluster in joined
    ]
    alone = [Target(resolution) for resolution in named if resolution.gpu.slug not in have]
    return (*alone, *on_clusters)


def assume_usual_links(targets: Sequence[Target], run: MeasuredRun) -> tuple[Target, ...]:
    """Give targets of which only the GPU is named the links of its usual nodes, where several ranks communicate.

    Args:
        targets: As they were named. The trace's own GPU keeps what was measured; where nothing was, GPUs without a
            usual node have one with as many as there are ranks.
        run: The measured run.
    """
    grouped = run.kernels.filter(pl.col("family") == "collective")["ranks"].max()
    ranks = max(run.trace.world_size, int(grouped) if isinstance(grouped, int | float) else 0)
    if ranks == 1 or not (run.kernels["family"] == "collective").any():
        return tuple(targets)
    is_predicted = run.program.has_predicted_times
    own = run.gpu.slug if run.gpu and not is_predicted else None

    def find_links(gpu: Gpu) -> Cluster | None:
        usual = find_usual_nodes(gpu, ranks)
        return load_cluster(f"{ranks}x{gpu.slug}") if usual is None and is_predicted else usual

    return tuple(
        one if one.cluster or one.gpu.gpu.slug == own else replace(one, links=find_links(one.gpu.gpu))
        for one in targets
    )


def check_cpus(targets: Sequence[Target], run: MeasuredRun, given: Mapping[str, bool]) -> None:
    """Check that CPUs among targets can run what is asked.

    Args:
        targets: As they were named.
        run: The measured run.
        given: Options that only a GPU has, and whether they are given.

    Raises:
        RequestError: They can't.
    """
    cpu = next((one.gpu.gpu.slug for one in targets if one.gpu.gpu.is_cpu), None)
    if cpu is None:
        return
    if run.trace.world_size > 1 or (run.kernels["family"] == "collective").any():
        raise RequestError(messages.CPU_OF_SEVERAL_RANKS(cpu=cpu))
    facts, framework = run.trace.capture_facts, run.program.framework
    if engine := (facts and facts.engine) or (framework and framework[0]):
        raise RequestError(messages.CPU_WITHOUT_ENGINE(engine=engine, cpu=cpu))
    if option := next((name for name, is_given in given.items() if is_given), None):
        raise RequestError(messages.CPU_WITHOUT_OPTION(option=name_option(option), cpu=cpu))


def expand_group(name: str) -> list[str]:
    """Return the GPUs of a group; any other name as it is."""
    belongs = GPU_GROUPS.get(name.strip().lower())
    return [name] if belongs is None else [slug for slug in list_gpus() if belongs(load_gpu(slug))]


def resolve_prices(
    given: GivenPrices, source: Gpu | None, cluster: Cluster | None, targets: Sequence[Target]
) -> Prices:
    """Find whose the given prices are.

    Args:
        given: The prices.
        source: GPU of the trace.
        cluster: Where it was recorded.
        targets: The targets.

    Raises:
        PredictorError: A name may mean several of the GPUs at hand.
        RequestError: A price without a name has several targets, or a GPU has two prices.
    """
    places = (cluster, *(target.cluster for target in targets))
    clusters = [one for one in places if one]
    gpus = [kind.cluster.gpu for one in clusters for kind in one.kinds]
    return given.resolve(source, [*(target.gpu.gpu for target in targets), *gpus], clusters)


def resolve_gpu_name(name: str) -> Resolution:
    """Resolve a GPU's name, in any spelling.

    Raises:
        PredictorError: It is unknown or ambiguous.
        ClusterError: It is a cluster's name.
    """
    try:
        return resolve_gpu(name)
    except PredictorError as unknown:
        try:
            cluster = load_cluster(name)
        except ClusterError:
            raise unknown from None
        raise ClusterError(layouts.GPU_NAME_IS_CLUSTER(name=name, gpu=cluster.gpu.slug)) from unknown


def _deduplicate(found: Sequence[T], get_identity: Callable[[T], object]) -> list[T]:
    """Remove duplicates and keep the first of each: a GPU may have been given under two of its names."""
    kinds = [get_identity(one) for one in found]
    return [one for place, one in enumerate(found) if kinds[place] not in kinds[:place]]
