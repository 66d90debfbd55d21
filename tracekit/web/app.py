"""The application: routes, errors, and what stands in front of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from predictors import PredictorError
from tracekit import __version__
from tracekit.errors import TracekitError
from tracekit.web import answers, api, comparing, pages, timeline, tus
from tracekit.web.access import Guard
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.workers import Workers

DESCRIPTION = "Upload the PyTorch profiler traces of a run, ask how long its step would take on other GPUs."


def create_app(settings: Settings) -> FastAPI:
    """The application of one server; its workers run as long as it does."""
    store = Store.open(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers = Workers(settings, store)
        app.state.workers = workers
        workers.start()
        yield
        await to_thread.run_sync(workers.stop)
        store.close()

    app = FastAPI(
        title="tracekit",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.settings, app.state.store = settings, store
    for router in (api.router, comparing.router, tus.router, timeline.router, pages.router):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=answers.STATIC), name="static")
    app.add_exception_handler(TracekitError, answers.on_tracekit_error)
    app.add_exception_handler(PredictorError, answers.on_tracekit_error)
    app.add_exception_handler(HTTPException, answers.on_http_error)
    app.add_exception_handler(RequestValidationError, answers.on_invalid)
    app.add_middleware(Guard, settings=settings)
    return app
