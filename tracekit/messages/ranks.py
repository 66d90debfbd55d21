"""Files of the ranks of one job, and collectives that join them."""

from tracekit.messages.model import error, name_templates, warning

RANK_NOT_GIVEN = error("None of the files is of rank {rank}.", "Given: {given}.")
RANK_NOT_READ = error("Rank {rank} was not read from {path}.", "Read: {read:list}.")
RANK_NOT_RECORDED = error("Rank {rank} was not read from {path}.", "It doesn't say which rank it is of.")
RANKS_AMBIGUOUS = error(
    "{files} files, but which rank is {names}? The trace doesn't say.",
    "Put it into their names: trace_rank0.json.gz, trace_rank1.json.gz. Or give one file, if they are of several "
    "runs, or one process recorded them one after the other (a schedule without repeat=1).",
)
RANK_GIVEN_TWICE = error(
    "{path} and {other} are both of rank {rank}.",
    "Are they of two runs, or of a schedule without repeat=1? Give one file of each rank.",
)

RANK_CHOSEN = warning("Rank {rank} was read, of the {given} that were given.", "Choose another with {--ranks}.")
RANK_MISSING = warning("Rank {rank} of {world_size} was not given.")
RANKS_MISSING = warning("Ranks {ranks} of {world_size} were not given.")
RANKS_LACK_COLLECTIVES = warning(
    "Left out: rank {ranks}. {launches:count launch} have no kernel there, {collectives:count collective} that other "
    "ranks took part in among them. The rest is reported as if they never arrived late.",
    "Record fewer steps at once: full buffers lose kernels.",
)
WORLD_SIZES_DIFFER = warning("The files are of jobs of {world_sizes:list} ranks: are they of one run?")
GPUS_DIFFER = warning("The ranks ran on different GPUs: {gpus:list}.")
RECORDED_APART = warning("The ranks were recorded {minutes:,.0f} minutes apart: are they of one run?")
RANK_IMPOSSIBLE = warning("distributedInfo is wrong: its {key} {value:.40} is impossible, and was left out.")
RANK_BEYOND_WORLD = warning("distributedInfo is wrong: rank {rank} is beyond its {world_size} ranks.")

name_templates(globals())
