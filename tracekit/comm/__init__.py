"""Clusters, and how long collectives take on them."""

from tracekit.comm.cluster import Cluster
from tracekit.comm.errors import ClusterError, UnknownClusterError
from tracekit.comm.names import list_clusters, load_cluster
from tracekit.comm.predict import predict

__all__ = ["Cluster", "ClusterError", "UnknownClusterError", "list_clusters", "load_cluster", "predict"]
