"""Resumable uploads by the tus protocol 1.0.0 (tus.io) with four of its extensions; plain PUT."""

import base64
import re
from email.utils import formatdate
from types import MappingProxyType
from typing import Annotated, Any

from anyio import CancelScope, to_thread
from fastapi import APIRouter, Depends, Header
from fastapi import Path as InPath
from pydantic import BaseModel, BeforeValidator
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tracekit.bounds import MAX_UPLOAD_METADATA_CHARS
from tracekit.messages import front_ends
from tracekit.web.access import TUS_VERSION, Id, Owner, RequesterDependency, StoreDependency, document_refusals
from tracekit.web.errors import WebError
from tracekit.web.uploads import ALGORITHMS, Checksum, Upload

TUS_EXTENSIONS = "creation,termination,expiration,checksum"
DATA_TYPE = "application/offset+octet-stream"
MAX_LENGTH_BYTES = 2**53


class VersionError(WebError):
    """A request in another version of the protocol."""

    status = 412
    headers = MappingProxyType({"Tus-Version": TUS_VERSION})


async def _check_version(
    tus_resumable: Annotated[str | None, Header(description=f"The protocol's version, {TUS_VERSION}.")] = None,
) -> None:
    if tus_resumable != TUS_VERSION:
        raise VersionError(front_ends.UPLOAD_PROTOCOL_UNKNOWN(version=TUS_VERSION))


def _parse_size(text: Any) -> Any:
    """Refuse what Python takes for a whole number and the protocol doesn't, such as ``+5``."""
    if isinstance(text, str) and not re.fullmatch("[0-9]{1,16}", text):
        raise ValueError("a whole number without sign")
    return text


Size = Annotated[int, BeforeValidator(_parse_size), Header(ge=0, le=MAX_LENGTH_BYTES)]
IN_VERSION = [Depends(_check_version)]
"""What is looked at before anything else of a request."""


class MediaTypeError(WebError):
    """Data of the wrong media type."""

    status = 415


class _TextConvertor(PathConvertor):
    """Path convertor for file names with slashes and line breaks; Starlette's ``path`` stops at line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("text", _TextConvertor())


class Uploaded(BaseModel):
    """A file that has arrived."""

    id: str
    name: str
    length: int


def _describe_body(media_type: str) -> dict[str, object]:
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


router = APIRouter(prefix="/api/v1", tags=["uploads"])


@router.options("/uploads", status_code=204, summary="What the server can do (tus)", responses=document_refusals())
def options(request: Request) -> Response:
    """Version, extensions and the largest size."""
    most = request.app.state.settings.max_upload_bytes
    headers = {"Tus-Version": TUS_VERSION, "Tus-Extension": TUS_EXTENSIONS, "Tus-Max-Size": str(most)}
    return Response(status_code=204, headers={"Tus-Checksum-Algorithm": ",".join(ALGORITHMS), **headers})


@router.post(
    "/uploads",
    status_code=201,
    summary="Begin an upload (tus)",
    dependencies=IN_VERSION,
    responses=document_refusals(400, 412, 413),
)
def create(
    store: StoreDependency,
    requester: RequesterDependency,
    upload_length: Size,
    upload_metadata: Annotated[str, Header(description="filename and its value in base64.")] = "",
) -> Response:
    """Make room for a file; its address is in `Location`."""
    name = _parse_name(upload_metadata)
    upload = store.uploads.create(requester, name, upload_length, upload_metadata)
    return Response(status_code=201, headers={"Location": f"/api/v1/uploads/{upload.id}", **_build_headers(upload)})


@router.head(
    "/uploads/{upload_id}",
    summary="How much has arrived (tus)",
    dependencies=IN_VERSION,
    responses=document_refusals(404, 412),
)
def offset(store: StoreDependency, owner: Owner, upload_id: Id) -> Response:
    """Where to go on is in `Upload-Offset`."""
    uploads = store.uploads
    upload = uploads.get(owner, upload_id)
    headers = {"Upload-Offset": str(uploads.get_offset(upload))}
    if upload.length is not None:
        headers["Upload-Length"] = str(upload.length)
    if upload.description:
        headers["Upload-Metadata"] = upload.description
    return Response(headers={**headers, **_build_headers(upload)})


@router.patch(
    "/uploads/{upload_id}",
    status_code=204,
    summary="Send what is missing (tus)",
    dependencies=IN_VERSION,
    responses=document_refusals(400, 404, 409, 412, 413, 415, 423, 460),
    openapi_extra=_describe_body(DATA_TYPE),
)
async def append(
    request: Request,
    store: StoreDependency,
    owner: Owner,
    upload_id: Id,
    upload_offset: Size,
    upload_checksum: Annotated[str | None, Header(description="Algorithm, and digest of the data in base64.")] = None,
) -> Response:
    """Data from `Upload-Offset` on. Without `Upload-Checksum`, what arrives before the connection breaks is kept."""
    if request.headers.get("content-type") != DATA_TYPE:
        raise MediaTypeError(front_ends.UPLOAD_TYPE_WRONG(media_type=DATA_TYPE))
    checksum = None if upload_checksum is None else _parse_checksum(upload_checksum)
    uploads = store.uploads
    upload = await to_thread.run_sync(uploads.get, owner, upload_id)
    try:
        arrived = await uploads.append(
            upload, upload_offset, request.stream(), size=_get_body_length(request), checksum=checksum
        )
    except ClientDisconnect:
        return Response(status_code=204)
    return Response(status_code=204, headers={"Upload-Offset": str(arrived), **_build_headers(upload)})


@router.delete(
    "/uploads/{upload_id}",
    status_code=204,
    summary="Delete an upload (tus)",
    dependencies=IN_VERSION,
    responses=document_refusals(404, 412),
)
def remove(store: StoreDependency, owner: Owner, upload_id: Id) -> Response:
    """Delete what has arrived."""
    uploads = store.uploads
    uploads.remove(uploads.get(owner, upload_id))
    return Response(status_code=204)


@router.put(
    "/traces/{name:text}",
    status_code=201,
    summary="Upload a file at once (curl -T)",
    responses=document_refusals(413),
    openapi_extra=_describe_body("application/octet-stream"),
)
async def put(
    request: Request,
    store: StoreDependency,
    requester: RequesterDependency,
    name: Annotated[str, InPath(max_length=400)],
) -> Uploaded:
    """The file as the body; `curl -T trace.json.gz http://127.0.0.1:8321/api/v1/traces/` adds the name by itself."""
    uploads = store.uploads
    upload = await to_thread.run_sync(uploads.create, requester, name, _get_body_length(request))
    try:
        arrived = await uploads.append(upload, None if upload.length is None else 0, request.stream())
    except BaseException:
        with CancelScope(shield=True):
            await to_thread.run_sync(uploads.remove, upload)
        raise
    return Uploaded(id=upload.id, name=upload.name, length=arrived)


def _build_headers(upload: Upload) -> dict[str, str]:
    return {"Upload-Expires": formatdate(upload.expires, usegmt=True)}


def _get_body_length(request: Request) -> int | None:
    """Return the announced length of a request's body; the protocol parser has checked it."""
    announced = request.headers.get("content-length")
    return None if announced is None else int(announced)


def _parse_name(metadata: str) -> str:
    """Parse the file's name from tus metadata: comma-separated pairs of key and base64 value."""
    pairs = [pair.strip().partition(" ") for pair in metadata.split(",")]
    values = {key: value for key, _, value in pairs}
    is_well_formed = metadata.isascii() and len(values) == len(pairs) and ("" not in values or not metadata)
    if len(metadata) > MAX_UPLOAD_METADATA_CHARS or not is_well_formed:
        raise WebError(front_ends.UPLOAD_METADATA_WRONG(max_length=MAX_UPLOAD_METADATA_CHARS))
    try:
        for value in values.values():
            base64.b64decode(value, validate=True)
        return base64.b64decode(values.get("filename", "")).decode()
    except ValueError as error:
        raise WebError(front_ends.UPLOAD_NAME_UNREADABLE()) from error


def _parse_checksum(text: str) -> Checksum:
    algorithm, _, encoded = text.partition(" ")
    if algorithm not in ALGORITHMS:
        raise WebError(front_ends.UPLOAD_CHECKSUM_UNKNOWN(known=ALGORITHMS))
    try:
        return Checksum(algorithm, base64.b64decode(encoded, validate=True))
    except ValueError as error:
        raise WebError(front_ends.UPLOAD_CHECKSUM_UNKNOWN(known=ALGORITHMS)) from error
