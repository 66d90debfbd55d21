"""Resumable uploads by the tus protocol 1.0.0 (tus.io) with creation, termination and expiration; plain PUT."""

import base64
import binascii
from email.utils import formatdate
from typing import Annotated

from anyio import CancelScope, to_thread
from fastapi import APIRouter, Header
from fastapi import Path as InPath
from pydantic import BaseModel
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tracekit.messages import web_errors
from tracekit.web.errors import WebError
from tracekit.web.routes import Id, Owner, StoreDependency, document_refusals
from tracekit.web.uploads import Upload

TUS_VERSION = "1.0.0"
TUS_EXTENSIONS = "creation,termination,expiration"
DATA_TYPE = "application/offset+octet-stream"
MAX_LENGTH_BYTES = 2**53

Resumable = Annotated[str | None, Header(description=f"The protocol's version, {TUS_VERSION}.")]


class VersionError(WebError):
    """A request in another version of the protocol."""

    status = 412


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
    return Response(status_code=204, headers={"Tus-Resumable": TUS_VERSION, **headers})


@router.post("/uploads", status_code=201, summary="Begin an upload (tus)", responses=document_refusals(412, 413))
def create(
    store: StoreDependency,
    owner: Owner,
    upload_length: Annotated[int, Header(ge=0, le=MAX_LENGTH_BYTES)],
    upload_metadata: Annotated[str, Header(description="filename and its value in base64.")] = "",
    tus_resumable: Resumable = None,
) -> Response:
    """Make room for a file; its address is in `Location`."""
    _check_version(tus_resumable)
    upload = store.uploads.create(owner, _parse_name(upload_metadata), upload_length)
    return Response(status_code=201, headers={"Location": f"/api/v1/uploads/{upload.id}", **_build_headers(upload)})


@router.head("/uploads/{upload_id}", summary="How much has arrived (tus)", responses=document_refusals(404, 412))
def offset(store: StoreDependency, owner: Owner, upload_id: Id, tus_resumable: Resumable = None) -> Response:
    """Where to go on is in `Upload-Offset`."""
    _check_version(tus_resumable)
    uploads = store.uploads
    upload = uploads.get(owner, upload_id)
    headers = {"Upload-Offset": str(uploads.get_offset(upload))}
    if upload.length is not None:
        headers["Upload-Length"] = str(upload.length)
    return Response(headers={**headers, **_build_headers(upload)})


@router.patch(
    "/uploads/{upload_id}",
    status_code=204,
    summary="Send what is missing (tus)",
    responses=document_refusals(404, 409, 412, 413, 415, 423),
    openapi_extra=_describe_body(DATA_TYPE),
)
async def append(
    request: Request,
    store: StoreDependency,
    owner: Owner,
    upload_id: Id,
    upload_offset: Annotated[int, Header(ge=0, le=MAX_LENGTH_BYTES)],
    tus_resumable: Resumable = None,
) -> Response:
    """Data from `Upload-Offset` on. What arrives before the connection breaks is kept."""
    _check_version(tus_resumable)
    if request.headers.get("content-type") != DATA_TYPE:
        raise MediaTypeError(web_errors.UPLOAD_TYPE_WRONG(media_type=DATA_TYPE))
    uploads = store.uploads
    upload = await to_thread.run_sync(uploads.get, owner, upload_id)
    try:
        arrived = await uploads.append(upload, upload_offset, request.stream())
    except ClientDisconnect:
        return Response(status_code=204)
    return Response(status_code=204, headers={"Upload-Offset": str(arrived), **_build_headers(upload)})


@router.delete(
    "/uploads/{upload_id}", status_code=204, summary="Delete an upload (tus)", responses=document_refusals(404, 412)
)
def remove(store: StoreDependency, owner: Owner, upload_id: Id, tus_resumable: Resumable = None) -> Response:
    """Delete what has arrived."""
    _check_version(tus_resumable)
    uploads = store.uploads
    uploads.remove(uploads.get(owner, upload_id))
    return Response(status_code=204, headers={"Tus-Resumable": TUS_VERSION})


@router.put(
    "/traces/{name:text}",
    status_code=201,
    summary="Upload a file at once (curl -T)",
    responses=document_refusals(413),
    openapi_extra=_describe_body("application/octet-stream"),
)
async def put(
    request: Request, store: StoreDependency, owner: Owner, name: Annotated[str, InPath(max_length=400)]
) -> Uploaded:
    """The file as the body; `curl -T trace.json.gz http://127.0.0.1:8321/api/v1/traces/` adds the name by itself."""
    uploads = store.uploads
    announced = request.headers.get("content-length", "")
    length = int(announced) if announced.isdigit() else None
    upload = await to_thread.run_sync(uploads.create, owner, name, length)
    try:
        arrived = await uploads.append(upload, None if upload.length is None else 0, request.stream())
    except BaseException:
        with CancelScope(shield=True):
            await to_thread.run_sync(uploads.remove, upload)
        raise
    return Uploaded(id=upload.id, name=upload.name, length=arrived)


def _build_headers(upload: Upload) -> dict[str, str]:
    return {"Tus-Resumable": TUS_VERSION, "Upload-Expires": formatdate(upload.expires, usegmt=True)}


def _check_version(given: str | None) -> None:
    if given != TUS_VERSION:
        raise VersionError(web_errors.UPLOAD_PROTOCOL_UNKNOWN(version=TUS_VERSION))


def _parse_name(metadata: str) -> str:
    """Parse the file's name from tus metadata: comma-separated pairs of key and base64 value."""
    pairs = (pair.strip().partition(" ") for pair in metadata.split(","))
    encoded = {key: value for key, _, value in pairs}.get("filename", "")
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise WebError(web_errors.UPLOAD_NAME_UNREADABLE()) from error
