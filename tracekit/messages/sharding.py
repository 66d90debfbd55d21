"""Sharding plans of embedding tables."""

from tracekit.messages.model import error, name_templates, note

SHARDING_TABLES_MISSING = error(
    "There are no embedding tables to shard.",
    "Give a trace with look-ups recorded with shapes, a file of tables, or {--table}.",
)
TABLE_EXCEEDS_MEMORY = error(
    "The table {table!s:.60} doesn't fit: a rank needs at least {needed_bytes} for it and its sums, of {usable_bytes} "
    "usable.",
    "Take a smaller {--batch}, or a GPU with more memory.",
)
TABLES_EXCEED_MEMORY = error(
    "{tables:count table} with their optimizer's states take {needed_bytes}; with what a step's sums take beside them, "
    "they don't fit into {usable_bytes} of {ranks:count GPU}.",
    "Take more GPUs, a smaller {--batch}, or SGD.",
)
TABLES_EXCEED_HOST_MEMORY = error(
    "The {tables:count table} with the optimizer's states ({needed_bytes}) fit neither into the GPUs' memory nor into "
    "that of {nodes:count host} with {host_bytes} each ({told}).",
    "A host needs at least {host_needs_bytes}: if it has, write host_memory_gib into a cluster's file; or take more "
    "nodes.",
)
SHARDING_SKEW_ASSUMED = note(
    "How often rows of {tables:count table} are looked up isn't known: Zipf's law with 1.05 is assumed, and the "
    "intervals reach from even look-ups to 1.2.",
    "{--zipf} or :ALPHA of {--table} tells it.",
)
SHARDING_PLANS_EQUAL = note("Within {within_pct} of the first plan, too close to rank: {plans:list}.")
SHARDING_ON_HOST = note(
    "The weights of {tables:count table} lie in the hosts' memory: {taken_bytes} of {host_bytes} on the fullest host.",
    "Take more GPUs, or a cache (fused_uvm_caching), whose hits aren't modelled.",
)
SHARDING_HOST_ASSUMED = note(
    "How much memory a host has isn't known: {host_bytes} are assumed, {times:g} times that of its GPUs.",
    "Write host_memory_gib into a cluster's file.",
)
SHARDING_UNREADABLE = error("{path} can't be read: {reason}.", 'Give JSON: a list of tables, or {{"tables": [...]}}.')
SHARDING_TABLE_MALFORMED = error(
    "Table {number} of {path} is wrong: {reason}.",
    "Give num_embeddings and embedding_dim; also name, pooling_factor, alpha, data_type, optimizer, feature_names.",
)
SHARDING_TRACE_TABLES_EQUAL = note(
    "The trace tells the number of tables, their rows, width and look-ups in all: those of one look-up count as equal.",
    "A file with the tables tells them one by one.",
)
SHARDING_TABLES_TOO_MANY = error("{path} has more than {most} tables.", "Give fewer.")
SHARDING_BATCH_MISSING = error(
    "The tables don't tell how many samples a rank takes in a step.", "Give {--batch}, such as 8192."
)
SHARDING_CLUSTER_MISSING = error(
    "There is no cluster to shard the tables over.", "Give {--cluster}, such as 8xh100-sxm."
)

name_templates(globals())
