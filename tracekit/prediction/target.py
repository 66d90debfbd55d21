"""Names to targets."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from predictors import PredictorError, Resolution, resolve_gpu
from tracekit.comm import load_cluster
from tracekit.comm.errors import ClusterError
from tracekit.prediction.model import Target

T = TypeVar("T")


def targets(gpus: Sequence[str], clusters: Sequence[str] = ()) -> tuple[Target, ...]:
    """What was asked for: the clusters, and the GPUs that none of them has, in the order given, each once.

    Args:
        gpus: Names of GPUs, in any spelling.
        clusters: Names of clusters.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster is unknown or its name wrong, or stands where a GPU belongs.
    """
    joined = _once([load_cluster(name) for name in clusters], lambda cluster: cluster)
    have = {cluster.gpu.slug for cluster in joined}
    named = _once([resolve(name) for name in gpus], lambda resolution: resolution.gpu)
    slugs = {resolution.gpu.slug for resolution in named}
    on_clusters = [
        Target(Resolution(cluster.gpu, cluster.gpu.slug, "slug"), cluster, stands_for_gpu=cluster.gpu.slug in slugs)
        for cluster in joined
    ]
    alone = [Target(resolution) for resolution in named if resolution.gpu.slug not in have]
    return (*alone, *on_clusters)


def resolve(name: str) -> Resolution:
    """The GPU of that name, in any spelling.

    Raises:
        PredictorError: It is unknown or ambiguous.
        ClusterError: It is a cluster's.
    """
    try:
        return resolve_gpu(name)
    except PredictorError as unknown:
        try:
            cluster = load_cluster(name)
        except ClusterError:
            raise unknown from None
        hint = f"Its GPU is {cluster.gpu.slug}; --cluster {name} means all of it."
        raise ClusterError(f"{name} is a cluster, no GPU.", hint) from unknown


def _once(found: Sequence[T], what: Callable[[T], object]) -> list[T]:
    """The first of those that are the same: a GPU may have been given under two of its names."""
    kinds = [what(one) for one in found]
    return [one for place, one in enumerate(found) if kinds[place] not in kinds[:place]]
