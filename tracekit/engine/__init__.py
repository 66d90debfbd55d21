"""Where the ranks of a job are worked on: in this process, or in the workers of a Dask cluster.

An engine maps a function over items, one per rank, and does again what a lost worker had. The functions and what they
return are small: a rank's tables stay on the worker's disk.
"""

from tracekit.engine.engine import Engine, InProcessEngine
from tracekit.engine.named import check_engine, open_engine

__all__ = ["Engine", "InProcessEngine", "check_engine", "open_engine"]
