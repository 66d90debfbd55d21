"""Jobs whose ranks are worked on one by one, by an engine."""

from tracekit.messages.model import error, name_templates, note, warning

SCHEDULER_UNREACHABLE = error(
    "No Dask scheduler answers at {address}.",
    "Start one with dask scheduler, or use --engine dask for processes of this machine.",
)
SCHEDULER_LOST = error("The Dask scheduler went away.", "Try again once it answers; nothing of the job is kept.")
WORKERS_ENDED = error(
    "{times} Dask workers ended at the same rank, probably for want of memory.",
    "Give each worker more memory, or fewer threads.",
)
ENGINE_UNKNOWN = error(
    "There is no engine {engine!r}.", "Use local, dask, or a scheduler's address such as tcp://scheduler:8786."
)
FLEET_OPTION = error(
    "With {--engine}, a job is predicted as it is, without {option}.",
    "Leave it out, or leave {--engine} out to predict in one piece.",
)
STORE_WITHOUT_ENGINE = error(
    "{--store} keeps the tables of ranks that an engine works on.", "Leave it out, or name the engine with {--engine}."
)
RANKS_UNREADABLE = warning(
    "{ranks} of {files} ranks were left out: {names:list}. The first one: {reason}",
    "The rest is reported as if these never arrived late.",
)
RENDEZVOUS_DROPPED = warning("{collectives} arrivals at collectives contradict others and were left out.")
OPENING_ENGINE = note("get hold of the workers")
EXAMINING_RANKS = note("examine ranks: {done} of {ranks}")
READING_RANKS = note("read ranks: {done} of {ranks}")
LINKING_RANKS = note("join ranks: {done} of {ranks}")
EDITING_RANKS = note("edit ranks: {done} of {ranks}")
REPLAYING_RANKS = note("replay ranks: {done} of {ranks}")
PREDICTING_RANKS = note("predict ranks: {done} of {ranks}")

name_templates(globals())
