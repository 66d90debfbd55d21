"""Jobs whose ranks are worked on one by one, by an engine."""

from tracekit.messages.model import Severity, Template

SCHEDULER_UNREACHABLE = Template(
    "scheduler-unreachable",
    Severity.ERROR,
    "No Dask scheduler answers at {address}.",
    "Start one with dask scheduler, or use --engine dask for processes of this machine.",
)
SCHEDULER_LOST = Template(
    "scheduler-lost",
    Severity.ERROR,
    "The Dask scheduler went away.",
    "Try again once it answers; nothing of the job is kept.",
)
WORKERS_ENDED = Template(
    "workers-ended",
    Severity.ERROR,
    "{times} Dask workers ended at the same rank, probably for want of memory.",
    "Give each worker more memory, or fewer threads.",
)
ENGINE_UNKNOWN = Template(
    "engine-unknown",
    Severity.ERROR,
    "There is no engine {engine!r}.",
    "Use local, dask, or a scheduler's address such as tcp://scheduler:8786.",
)
FLEET_OPTION = Template(
    "fleet-option",
    Severity.ERROR,
    "With {--engine}, a job is predicted as it is, without {option}.",
    "Leave it out, or leave {--engine} out to predict in one piece.",
)
STORE_WITHOUT_ENGINE = Template(
    "store-without-engine",
    Severity.ERROR,
    "{--store} keeps the tables of ranks that an engine works on.",
    "Leave it out, or name the engine with {--engine}.",
)
CLUSTER_TOO_SMALL_FOR_FLEET = Template(
    "cluster-too-small-for-fleet",
    Severity.ERROR,
    "{layout} don't fit on {cluster}, which has {gpus:count GPU}.",
    "Name a larger cluster. Without {--engine}, a job that fits can be predicted: {--world-size} {fitting}.",
)
RANKS_UNREADABLE = Template(
    "ranks-unreadable",
    Severity.WARNING,
    "{ranks} of {files} ranks were left out: {names:list}. The first one: {reason}",
    "The rest is reported as if these never arrived late.",
)
RENDEZVOUS_DROPPED = Template(
    "rendezvous-dropped",
    Severity.WARNING,
    "{collectives} arrivals at collectives contradict others and were left out.",
)
OPENING_ENGINE = Template("opening-engine", Severity.NOTE, "get hold of the workers")
EXAMINING_RANKS = Template("examining-ranks", Severity.NOTE, "examine ranks: {done} of {ranks}")
READING_RANKS = Template("reading-ranks", Severity.NOTE, "read ranks: {done} of {ranks}")
LINKING_RANKS = Template("linking-ranks", Severity.NOTE, "join ranks: {done} of {ranks}")
REPLAYING_RANKS = Template("replaying-ranks", Severity.NOTE, "replay ranks: {done} of {ranks}")
PREDICTING_RANKS = Template("predicting-ranks", Severity.NOTE, "predict ranks: {done} of {ranks}")
