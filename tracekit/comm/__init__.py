"""Describe clusters and predict the latency of collectives on them."""

from tracekit.comm.cluster import Cluster, list_clusters, load_cluster
from tracekit.comm.errors import ClusterError, UnknownClusterError
from tracekit.comm.predict import predict

__all__ = ["Cluster", "ClusterError", "UnknownClusterError", "list_clusters", "load_cluster", "predict"]
