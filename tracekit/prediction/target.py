"""Names to targets."""

from collections.abc import Sequence

from predictors import Resolution, resolve_gpu
from tracekit.comm import load_cluster
from tracekit.prediction.model import Target


def targets(gpus: Sequence[str], clusters: Sequence[str] = ()) -> tuple[Target, ...]:
    """What was asked for: the clusters, and the GPUs that none of them has, in the order given.

    Args:
        gpus: Names of GPUs, in any spelling.
        clusters: Names of clusters.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster is unknown or its name wrong.
    """
    joined = [load_cluster(name) for name in clusters]
    on_clusters = [Target(Resolution(cluster.gpu, cluster.gpu.slug, "slug"), cluster) for cluster in joined]
    have = {cluster.gpu.slug for cluster in joined}
    alone = [Target(resolution) for resolution in map(resolve_gpu, gpus) if resolution.gpu.slug not in have]
    return (*alone, *on_clusters)
