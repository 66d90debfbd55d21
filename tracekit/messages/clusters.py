"""Clusters: their names and files, and collectives on them."""

from tracekit.messages.model import error, name_templates

CLUSTER_UNKNOWN = error(
    "Unknown cluster {name!r}: write it as 8xh100-sxm, as 4x8xh100-sxm@ndr400, or by its name.",
    "`tracekit clusters` lists all.",
)
CLUSTER_MISTYPED = error(
    "Unknown cluster {name!r}: write it as 8xh100-sxm, as 4x8xh100-sxm@ndr400, or by its name.",
    "Did you mean {similar:list}? `tracekit clusters` lists all.",
)
CLUSTER_GPU_AMBIGUOUS = error("Cluster {name!r}: {reason}")
CLUSTER_WITHOUT_NETWORK = error(
    "Cluster {name!r} has no network.", "Write it as {name}@ndr400, with the Gbit/s of each GPU."
)
CLUSTER_IS_ONE_NODE = error("Cluster {name!r} has no network: {slug!r} stands for one node.")
CLUSTER_NETWORK_UNREADABLE = error(
    "Cluster {name!r}: can't read the network {network!r}.",
    "Write one of {known:list} and the Gbit/s of each GPU, such as ndr400 or roce200.",
)
CLUSTER_SIZE_INVALID = error("Cluster {name!r} has {gpus:,} GPUs; it may have 1 to {largest:,}.")

CLUSTER_FILE_NOT_FOUND = error("{path}: no such file.")
CLUSTER_FILE_UNREADABLE = error("{path} can't be read: {reason}.")
CLUSTER_FILE_NOT_TOML = error("{path}: {reason}.")
CLUSTER_KEY_UNKNOWN = error("{path}: unknown key {key!r}; known are {known:list}.")
CLUSTER_KEY_MISSING = error("{path}: missing key {key!r}.")
CLUSTER_VALUE_TYPE = error("{path}: {key} must be of type {type}, not {value}.")
CLUSTER_VALUE_NEGATIVE = error("{path}: {key} must be finite and not negative, but is {value}.")
CLUSTER_VALUE_TOO_LARGE = error("{path}: {key} can be {largest:,} at most, not {value}.")
CLUSTER_VALUE_UNKNOWN = error("{path}: {key} must be one of {known:list}, not {value}.")
CLUSTER_FABRIC_WITHOUT_LINKS = error("{path}: {gpu} has no links of its own: its fabric is 'pcie', not {fabric!r}.")
CLUSTER_OVERSUBSCRIPTION_INVALID = error("{path}: oversubscription must be at least 1, which is none, not {value}.")
CLUSTER_PAIR_GBPS_MISPLACED = error("{path}: a mesh, and nothing else, needs pair_gbps, of the links between two GPUs.")
CLUSTER_WITHOUT_NODES = error("{path}: nodes, gpus_per_node and rented_gpus must be at least 1.")
CLUSTER_NETWORK_CONTRADICTORY = error("{path}: network, nics_per_node, nic_gbit and nodes don't go together.")
CLUSTER_SOURCE_MISSING = error("{path}: [sourced] names {name!r}, which is not in [sources].")

MEASURED_INCOMPLETE = error("{path}: [[measured]] needs collective, bytes, ranks, and either time_us or busbw_gbps.")
MEASURED_KEY_UNKNOWN = error("{path}: [[measured]] has an unknown key {key!r}; known are {known:list}.")
MEASURED_VALUE_INVALID = error("{path}: {key} of [[measured]] can't be {value}.")
MEASURED_COLLECTIVE_UNKNOWN = error("{path}: unknown collective {collective!r}; known are {known:list}.")
MEASURED_NODES_IMPOSSIBLE = error("{path}: [[measured]] has {ranks} ranks on {nodes} nodes, which can't be.")
MEASURED_WITHOUT_NETWORK = error("{path}: [[measured]] has {nodes} nodes, but the file has no network between them.")

ALGORITHM_UNKNOWN = error("Unknown algorithm {algorithm!r}.", "Take one of {known:list}.")
COLLECTIVE_COLUMN_MISSING = error("The table of collectives has no column {column!r}.", "It needs {needed:list}.")
COLLECTIVE_COLUMN_TYPE = error("Column {column!r} must be numbers, not {type}.")
COLLECTIVE_VALUE_INVALID = error("{column} must be numbers from {least} on, not {value}.", "Ranks are whole numbers.")
COLLECTIVE_TOO_LARGE = error(
    "{collective} over {ranks:count rank} on {nodes:count node} doesn't fit on {cluster} ({cluster_nodes:count node} "
    "of {gpus_per_node:count GPU}).",
    "Name a larger cluster, or predict a job that fits: {--world-size} {cluster_gpus}.",
)

name_templates(globals())
