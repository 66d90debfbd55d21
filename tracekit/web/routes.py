"""Shared parts of routes: owner, store, and the statuses of refused requests."""

from typing import Annotated

from fastapi import Depends
from fastapi import Path as InPath
from starlette.requests import Request

from tracekit.web.access import get_owner, get_requester
from tracekit.web.requester import Requester
from tracekit.web.responses import ErrorBody
from tracekit.web.store import Store


async def _get_store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


ID_PATTERN = "^[0-9a-f]{32}$"
Id = Annotated[str, InPath(pattern=ID_PATTERN)]
Owner = Annotated[str, Depends(get_owner)]
RequesterDependency = Annotated[Requester, Depends(get_requester)]
StoreDependency = Annotated[Store, Depends(_get_store)]
"""Dependency on the application's store."""


def document_refusals(*statuses: int) -> dict[int | str, dict[str, type[ErrorBody]]]:
    """Describe the error statuses of a route for the API's description."""
    return {status: {"model": ErrorBody} for status in (*statuses, 401, 403, 422, 429, 500, 503, 507)}
