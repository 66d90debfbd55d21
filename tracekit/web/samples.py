"""Sample traces to try: beside the package in a checkout, inside it once installed."""

from functools import cache
from pathlib import Path

from tracekit.messages import web_errors
from tracekit.web.errors import NotFoundError
from tracekit.web.requester import Requester
from tracekit.web.uploads import Upload, UploadStore

SAMPLE_SUFFIX = ".json.gz"
SAMPLE_FOLDERS = (Path(__file__).parent / "samples", Path(__file__).parents[2] / "sample_traces")


@cache
def _find_samples() -> dict[str, Path]:
    return {
        path.name.removesuffix(SAMPLE_SUFFIX): path
        for folder in SAMPLE_FOLDERS
        for path in sorted(folder.glob(f"*{SAMPLE_SUFFIX}"))
    }


def list_sample_names() -> list[str]:
    """Return the names of the samples."""
    return list(_find_samples())


def upload_sample(uploads: UploadStore, requester: Requester, name: str) -> Upload:
    """Copy a sample as the requester's upload.

    Raises:
        NotFoundError: There is no such sample.
    """
    path = _find_samples().get(name)
    if path is None:
        raise NotFoundError(web_errors.SAMPLE_UNKNOWN(known=list_sample_names()))
    return uploads.copy(requester, path)
