"""Clusters: their names and files, and collectives on them."""

from tracekit.messages.model import Severity, Template

CLUSTER_UNKNOWN = Template(
    "cluster-unknown",
    Severity.ERROR,
    "Unknown cluster {name!r}: write it as 8xh100-sxm, as 4x8xh100-sxm@ndr400, or by its name.",
    "`tracekit clusters` lists all.",
)
CLUSTER_MISTYPED = Template(
    "cluster-mistyped",
    Severity.ERROR,
    "Unknown cluster {name!r}: write it as 8xh100-sxm, as 4x8xh100-sxm@ndr400, or by its name.",
    "Did you mean {similar:list}? `tracekit clusters` lists all.",
)
CLUSTER_GPU_AMBIGUOUS = Template("cluster-gpu-ambiguous", Severity.ERROR, "Cluster {name!r}: {reason}")
CLUSTER_WITHOUT_NETWORK = Template(
    "cluster-without-network",
    Severity.ERROR,
    "Cluster {name!r} has no network.",
    "Write it as {name}@ndr400, with the Gbit/s of each GPU.",
)
CLUSTER_IS_ONE_NODE = Template(
    "cluster-is-one-node", Severity.ERROR, "Cluster {name!r} has no network: {slug!r} stands for one node."
)
CLUSTER_NETWORK_UNREADABLE = Template(
    "cluster-network-unreadable",
    Severity.ERROR,
    "Cluster {name!r}: can't read the network {network!r}.",
    "Write one of {known:list} and the Gbit/s of each GPU, such as ndr400 or roce200.",
)
CLUSTER_SIZE_INVALID = Template(
    "cluster-size-invalid", Severity.ERROR, "Cluster {name!r} has {gpus:,} GPUs; it may have 1 to {largest:,}."
)

CLUSTER_FILE_NOT_FOUND = Template("cluster-file-not-found", Severity.ERROR, "{path}: no such file.")
CLUSTER_FILE_UNREADABLE = Template("cluster-file-unreadable", Severity.ERROR, "{path} can't be read: {reason}.")
CLUSTER_FILE_NOT_TOML = Template("cluster-file-not-toml", Severity.ERROR, "{path}: {reason}.")
CLUSTER_KEY_UNKNOWN = Template(
    "cluster-key-unknown", Severity.ERROR, "{path}: unknown key {key!r}; known are {known:list}."
)
CLUSTER_KEY_MISSING = Template("cluster-key-missing", Severity.ERROR, "{path}: missing key {key!r}.")
CLUSTER_VALUE_TYPE = Template(
    "cluster-value-type", Severity.ERROR, "{path}: {key} must be of type {type}, not {value}."
)
CLUSTER_VALUE_NEGATIVE = Template(
    "cluster-value-negative", Severity.ERROR, "{path}: {key} must be finite and not negative, but is {value}."
)
CLUSTER_VALUE_TOO_LARGE = Template(
    "cluster-value-too-large", Severity.ERROR, "{path}: {key} can be {largest:,} at most, not {value}."
)
CLUSTER_VALUE_UNKNOWN = Template(
    "cluster-value-unknown", Severity.ERROR, "{path}: {key} must be one of {known:list}, not {value}."
)
CLUSTER_FABRIC_WITHOUT_LINKS = Template(
    "cluster-fabric-without-links",
    Severity.ERROR,
    "{path}: {gpu} has no links of its own: its fabric is 'pcie', not {fabric!r}.",
)
CLUSTER_OVERSUBSCRIPTION_INVALID = Template(
    "cluster-oversubscription-invalid",
    Severity.ERROR,
    "{path}: oversubscription must be at least 1, which is none, not {value}.",
)
CLUSTER_PAIR_GBPS_MISPLACED = Template(
    "cluster-pair-gbps-misplaced",
    Severity.ERROR,
    "{path}: a mesh, and nothing else, needs pair_gbps, of the links between two GPUs.",
)
CLUSTER_WITHOUT_NODES = Template(
    "cluster-without-nodes", Severity.ERROR, "{path}: nodes, gpus_per_node and rented_gpus must be at least 1."
)
CLUSTER_NETWORK_CONTRADICTORY = Template(
    "cluster-network-contradictory",
    Severity.ERROR,
    "{path}: network, nics_per_node, nic_gbit and nodes don't go together.",
)
CLUSTER_SOURCE_MISSING = Template(
    "cluster-source-missing", Severity.ERROR, "{path}: [sourced] names {name!r}, which is not in [sources]."
)

MEASURED_INCOMPLETE = Template(
    "measured-incomplete",
    Severity.ERROR,
    "{path}: [[measured]] needs collective, bytes, ranks, and either time_us or busbw_gbps.",
)
MEASURED_KEY_UNKNOWN = Template(
    "measured-key-unknown",
    Severity.ERROR,
    "{path}: [[measured]] has an unknown key {key!r}; known are {known:list}.",
)
MEASURED_VALUE_INVALID = Template(
    "measured-value-invalid", Severity.ERROR, "{path}: {key} of [[measured]] can't be {value}."
)
MEASURED_COLLECTIVE_UNKNOWN = Template(
    "measured-collective-unknown",
    Severity.ERROR,
    "{path}: unknown collective {collective!r}; known are {known:list}.",
)
MEASURED_NODES_IMPOSSIBLE = Template(
    "measured-nodes-impossible",
    Severity.ERROR,
    "{path}: [[measured]] has {ranks} ranks on {nodes} nodes, which can't be.",
)
MEASURED_WITHOUT_NETWORK = Template(
    "measured-without-network",
    Severity.ERROR,
    "{path}: [[measured]] has {nodes} nodes, but the file has no network between them.",
)

ALGORITHM_UNKNOWN = Template(
    "algorithm-unknown", Severity.ERROR, "Unknown algorithm {algorithm!r}.", "Take one of {known:list}."
)
COLLECTIVE_COLUMN_MISSING = Template(
    "collective-column-missing",
    Severity.ERROR,
    "The table of collectives has no column {column!r}.",
    "It needs {needed:list}.",
)
COLLECTIVE_COLUMN_TYPE = Template(
    "collective-column-type", Severity.ERROR, "Column {column!r} must be numbers, not {type}."
)
COLLECTIVE_VALUE_INVALID = Template(
    "collective-value-invalid",
    Severity.ERROR,
    "{column} must be numbers from {least} on, not {value}.",
    "Ranks are whole numbers.",
)
COLLECTIVE_TOO_LARGE = Template(
    "collective-too-large",
    Severity.ERROR,
    "{collective} over {ranks:count rank} on {nodes:count node} doesn't fit on {cluster} ({cluster_nodes:count node} "
    "of {gpus_per_node:count GPU}).",
    "Name a larger cluster, or predict a job that fits: {--world-size} {cluster_gpus}.",
)
