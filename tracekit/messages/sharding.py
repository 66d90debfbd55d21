"""Sharding plans of embedding tables."""

from tracekit.messages.model import Severity, Template

SHARDING_TABLES_MISSING = Template(
    "sharding-tables-missing",
    Severity.ERROR,
    "There are no embedding tables to shard.",
    "Give a trace with look-ups recorded with shapes, a file of tables, or {--table}.",
)
TABLE_EXCEEDS_MEMORY = Template(
    "table-exceeds-memory",
    Severity.ERROR,
    "The table {table!s:.60} doesn't fit: a rank needs at least {needed_bytes} for it and its sums, of {usable_bytes} "
    "usable.",
    "Take a smaller {--batch}, or a GPU with more memory.",
)
TABLES_EXCEED_MEMORY = Template(
    "tables-exceed-memory",
    Severity.ERROR,
    "{tables:count table} with their optimizer's states take {needed_bytes}; with what a step's sums take beside them, "
    "they don't fit into {usable_bytes} of {ranks:count GPU}.",
    "Take more GPUs, a smaller {--batch}, or SGD.",
)
TABLES_EXCEED_HOST_MEMORY = Template(
    "tables-exceed-host-memory",
    Severity.ERROR,
    "The {tables:count table} with the optimizer's states ({needed_bytes}) fit neither into the GPUs' memory nor into "
    "that of {nodes:count host} with {host_bytes} each ({told}).",
    "A host needs at least {host_needs_bytes}: if it has, write host_memory_gib into a cluster's file; or take more "
    "nodes.",
)
SHARDING_SKEW_ASSUMED = Template(
    "sharding-skew-assumed",
    Severity.NOTE,
    "How often rows of {tables:count table} are looked up isn't known: Zipf's law with 1.05 is assumed, and the "
    "intervals reach from even look-ups to 1.2.",
    "{--zipf} or :ALPHA of {--table} tells it.",
)
SHARDING_PLANS_EQUAL = Template(
    "sharding-plans-equal",
    Severity.NOTE,
    "Within {within_pct} of the first plan, too close to rank: {plans:list}.",
)
SHARDING_ON_HOST = Template(
    "sharding-on-host",
    Severity.NOTE,
    "The weights of {tables:count table} lie in the hosts' memory: {taken_bytes} of {host_bytes} on the fullest host.",
    "Take more GPUs, or a cache (fused_uvm_caching), whose hits aren't modelled.",
)
SHARDING_HOST_ASSUMED = Template(
    "sharding-host-assumed",
    Severity.NOTE,
    "How much memory a host has isn't known: {host_bytes} are assumed, {times:g} times that of its GPUs.",
    "Write host_memory_gib into a cluster's file.",
)
SHARDING_UNREADABLE = Template(
    "sharding-unreadable",
    Severity.ERROR,
    "{path} can't be read: {reason}.",
    'Give JSON: a list of tables, or {{"tables": [...]}}.',
)
SHARDING_TABLE_MALFORMED = Template(
    "sharding-table-malformed",
    Severity.ERROR,
    "Table {number} of {path} is wrong: {reason}.",
    "Give num_embeddings and embedding_dim; also name, pooling_factor, alpha, data_type, optimizer, feature_names.",
)
SHARDING_TRACE_TABLES_EQUAL = Template(
    "sharding-trace-tables-equal",
    Severity.NOTE,
    "The trace tells the number of tables, their rows, width and look-ups in all: those of one look-up count as equal.",
    "A file with the tables tells them one by one.",
)
SHARDING_TABLES_TOO_MANY = Template(
    "sharding-tables-too-many", Severity.ERROR, "{path} has more than {most} tables.", "Give fewer."
)
SHARDING_BATCH_MISSING = Template(
    "sharding-batch-missing",
    Severity.ERROR,
    "The tables don't tell how many samples a rank takes in a step.",
    "Give {--batch}, such as 8192.",
)
SHARDING_CLUSTER_MISSING = Template(
    "sharding-cluster-missing",
    Severity.ERROR,
    "There is no cluster to shard the tables over.",
    "Give {--cluster}, such as 8xh100-sxm.",
)
