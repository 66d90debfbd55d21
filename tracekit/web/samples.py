"""Sample traces to try."""

from tracekit.messages import front_ends
from tracekit.samples import find_samples
from tracekit.web.errors import NotFoundError
from tracekit.web.requester import Requester
from tracekit.web.uploads import Upload, UploadStore


def list_sample_names() -> list[str]:
    """Return the names of the samples."""
    return list(find_samples())


def upload_sample(uploads: UploadStore, requester: Requester, name: str) -> Upload:
    """Copy a sample as the requester's upload.

    Raises:
        NotFoundError: There is no such sample.
    """
    path = find_samples().get(name)
    if path is None:
        raise NotFoundError(front_ends.SAMPLE_UNKNOWN(known=list_sample_names()))
    return uploads.copy(requester, path)
