"""What routes have in common: who asks, the store that they ask, and what they may be refused with."""

from typing import Annotated

from fastapi import Depends
from fastapi import Path as InPath
from starlette.requests import Request

from tracekit.web.access import owner_of
from tracekit.web.answers import ErrorBody
from tracekit.web.store import Store


async def _store_of(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


ID = "^[0-9a-f]{32}$"
Id = Annotated[str, InPath(pattern=ID)]
Owner = Annotated[str, Depends(owner_of)]
Opened = Annotated[Store, Depends(_store_of)]
"""The application's store."""


def refusals(*statuses: int) -> dict[int | str, dict[str, type[ErrorBody]]]:
    """The statuses that a route may refuse with, for the API's description."""
    return {status: {"model": ErrorBody} for status in (*statuses, 401, 403, 422, 429, 503, 507)}
