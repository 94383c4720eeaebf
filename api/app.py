"""The application: every route under ``/api/v1``; probes and metrics also at the root."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi import APIRouter, FastAPI

from api import problems
from api.changes.endpoints import router as changes_router
from api.dependencies import MAX_WAITING_REQUESTS
from api.engine.endpoints import router as engine_router
from api.health.endpoints import router as health_router
from api.migrations.endpoints import router as migrations_router
from api.openapi import describe
from api.plan.endpoints import preview_router
from api.plan.endpoints import router as plan_router
from api.queries.endpoints import router as queries_router
from api.queries.endpoints import validate_router
from api.queries.results import router as results_router
from api.statistics.endpoints import metrics_router
from api.statistics.endpoints import router as statistics_router
from api.streams.endpoints import router as streams_router
from api.streams.event_body import MAX_BODY_BYTES
from service.config.settings import Settings, load_settings
from service.jvm.jvm import Jvm
from service.workspace.workspace import Workspace

PREFIX = "/api/v1"


def create_app(settings: Settings | None = None, jvm: Jvm | None = None) -> FastAPI:
    """Build the application; its workspace, engine included, lives as long as the server runs it.

    Args:
        settings: Settings of the service; None reads them from the environment.
        jvm: Spark's JVM, if one was launched with the same settings already.
    """
    chosen = settings if settings is not None else load_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workspace = Workspace(chosen, jvm)
        await anyio.to_thread.run_sync(workspace.start)
        app.state.workspace = workspace
        app.state.wait_limiter = anyio.CapacityLimiter(MAX_WAITING_REQUESTS)
        app.state.idempotency_keys = set()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(workspace.close)

    app = FastAPI(
        title="Sluice",
        summary="Many continuous window joins, one shared Spark job.",
        version="1",
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=f"{PREFIX}/docs",
        redoc_url=None,
        redirect_slashes=False,
        max_body_size=MAX_BODY_BYTES,
    )
    api = APIRouter(prefix=PREFIX)
    for router in (
        streams_router,
        validate_router,
        queries_router,
        changes_router,
        results_router,
        preview_router,
        plan_router,
        migrations_router,
        statistics_router,
        engine_router,
        health_router,
        metrics_router,
    ):
        api.include_router(router)
    app.include_router(api)
    app.include_router(health_router, include_in_schema=False)
    app.include_router(metrics_router, include_in_schema=False)
    problems.install(app)
    describe(app)
    return app
