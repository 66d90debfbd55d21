"""Make a job of many ranks from the traces of a few: copies with kernel times of their own.

    python -m tests.benchmarks.fleet_copies FOLDER RANKS TRACE [TRACE...]

Each copy's kernels but its collectives are shortened at random, by up to a tenth, and one rank in 64 by nothing at all.
Its collectives begin later at random, by up to a twentieth of what they take.
All ranks are in the groups of the first trace, which become as large as the job.
"""

import gzip
import random
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from backports import zstd

MOST_SHORTER, MOST_LATER = 0.1, 0.05
SLOW_EVERY = 64
SEED = 46
KERNEL = re.compile(rb'("cat": ?"kernel", ?"name": ?"(?!nccl|rccl)[^{]*?"dur": ?)([\d.]+)')
COLLECTIVE = re.compile(rb'("cat": ?"kernel", ?"name": ?"(?:nccl|rccl)[^{]*?"ts": ?)([\d.]+)(, ?"dur": ?)([\d.]+)')
RANK = re.compile(rb'("rank": ?)\d+(, ?"world_size": ?)\d+')
GROUP_SIZE = re.compile(rb'("Group size": ?)\d+')
GROUP_RANKS = re.compile(rb'("Process Group Ranks": ?")\[[^]]*\]')


def copy_rank(folder: Path, ranks: int, texts: Sequence[bytes], rank: int) -> None:
    """Write the trace of one rank."""
    draw = random.Random(SEED * ranks + rank)
    most = MOST_SHORTER if rank % SLOW_EVERY else 0.0
    text = KERNEL.sub(
        lambda found: b"%b%.3f" % (found[1], float(found[2]) * (1 - draw.uniform(0, most))), texts[rank % len(texts)]
    )
    text = COLLECTIVE.sub(partial(_delay, draw), text)
    text = RANK.sub(rb"\g<1>%d\g<2>%d" % (rank, ranks), text, count=1)
    text = GROUP_SIZE.sub(rb"\g<1>%d" % ranks, text)
    text = GROUP_RANKS.sub(rb"\g<1>[0, 1, 2, ..., %d]" % (ranks - 1), text)
    (folder / f"rank{rank}.json.zst").write_bytes(zstd.compress(text, level=1))


def _delay(draw: random.Random, found: re.Match[bytes]) -> bytes:
    start_us, length_us = float(found[2]), float(found[4])
    later_us = length_us * draw.uniform(0, MOST_LATER)
    return b"%b%.3f%b%.3f" % (found[1], start_us + later_us, found[3], length_us - later_us)


def copy_ranks(folder: Path, ranks: int, traces: Sequence[Path]) -> None:
    """Write the traces of all ranks.

    Args:
        folder: Where to, a new folder.
        ranks: How many.
        traces: The traces that are copied in turn.
    """
    folder.mkdir(parents=True)
    texts = [gzip.decompress(path.read_bytes()) for path in traces]
    with ProcessPoolExecutor() as pool:
        list(pool.map(partial(copy_rank, folder, ranks, texts), range(ranks), chunksize=8))


if __name__ == "__main__":
    copy_ranks(Path(sys.argv[1]), int(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
