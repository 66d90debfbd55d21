"""The traces to try: in a checkout beside the package, in an installed package within it."""

from functools import cache
from pathlib import Path

from tracekit.web.errors import NotFoundError
from tracekit.web.uploads import Upload, Uploads

SUFFIX = ".json.gz"
FOLDERS = (Path(__file__).parent / "samples", Path(__file__).parents[2] / "sample_traces")


@cache
def _paths() -> dict[str, Path]:
    return {path.name.removesuffix(SUFFIX): path for folder in FOLDERS for path in sorted(folder.glob(f"*{SUFFIX}"))}


def names() -> list[str]:
    """What they are called."""
    return list(_paths())


def upload(uploads: Uploads, owner: str, name: str) -> Upload:
    """A copy of a sample as the owner's upload.

    Raises:
        NotFoundError: There is no such sample.
    """
    path = _paths().get(name)
    if path is None:
        raise NotFoundError("There is no such sample.", f"There are: {', '.join(names())}.")
    return uploads.copy(owner, path)
