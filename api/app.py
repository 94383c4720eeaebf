"""The application: every route under ``/api/v1``; probes and metrics also at the root."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import anyio
from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

from api import problems
from api.access.guard import Guard
from api.audit.endpoints import router as audit_router
from api.changes.endpoints import router as changes_router
from api.console.console import install_console
from api.dependencies import MAX_WAITING_REQUESTS
from api.documentation.docs_pages import install_docs
from api.documentation.openapi import Security, describe
from api.engine.endpoints import router as engine_router
from api.envelope.envelope import Envelope
from api.envelope.origins import Origins, is_loopback
from api.health.endpoints import router as health_router
from api.migrations.endpoints import router as migrations_router
from api.plan.endpoints import preview_router
from api.plan.endpoints import router as plan_router
from api.queries.endpoints import router as queries_router
from api.queries.endpoints import validate_router
from api.results.endpoints import export_router
from api.results.endpoints import router as results_router
from api.results.readers import Readers
from api.statistics.endpoints import metrics_router
from api.statistics.endpoints import router as statistics_router
from api.streams.endpoints import router as streams_router
from api.traces import Traces
from service.access.tokens import TokenVerifier
from service.config.settings import Settings, load_settings
from service.jvm.jvm import Jvm
from service.workspace.workspace import Workspace

PREFIX = "/api/v1"

#: Routes that are missing in a process without the part ``api``.
_OF_API = (
    audit_router,
    streams_router,
    validate_router,
    queries_router,
    changes_router,
    results_router,
    export_router,
    preview_router,
    plan_router,
    migrations_router,
    statistics_router,
    engine_router,
)


class _Application(FastAPI):
    """FastAPI in an envelope, which also covers the answers of FastAPI's own error handlers."""

    def __init__(self, settings: Settings, **options: Any) -> None:  # Any: as FastAPI takes them
        super().__init__(**options)
        self._settings = settings

    def build_middleware_stack(self) -> ASGIApp:
        """Wrap all of FastAPI's middleware in the envelope."""
        return Envelope(
            super().build_middleware_stack(),
            origins_of(self._settings),
            problems.problem_response,
            self._settings.server.max_body_bytes,
        )


def origins_of(settings: Settings) -> Origins:
    """Return the hosts and origins that a service accepts."""
    loopback = is_loopback(settings.server.host)
    return Origins(
        names=frozenset(name.lower() for name in settings.access.allowed_hosts),
        any_name=needs_key(settings),
        loopback=loopback,
    )


def guard_of(settings: Settings) -> Guard:
    """Return the guard of a service's routes.

    Raises:
        TokensUnsupported: An issuer is configured, but the package that verifies its tokens is not installed.
    """
    access = settings.access
    tokens = None
    if access.oidc_issuer is not None:
        tokens = TokenVerifier(access.oidc_issuer, access.oidc_audience)
    return Guard(needs_key(settings), tokens)


def needs_key(settings: Settings) -> bool:
    """Return whether clients must prove their identity."""
    access = settings.access
    return access.require_keys or not (is_loopback(settings.server.host) or access.insecure)


#: Parts of a service that a process may have.
Part = Literal["api", "engine"]
#: Both parts in one process.
WHOLE: frozenset[Part] = frozenset({"api", "engine"})


def create_app(
    settings: Settings | None = None,
    jvm: Jvm | None = None,
    parts: frozenset[Part] = WHOLE,
    replaced: Callable[[], None] | None = None,
) -> FastAPI:
    """Build the application; its workspace, and its engine if any, start and stop with the server.

    Args:
        settings: Settings of the service; None reads them from the environment.
        jvm: Spark's JVM, if one was launched with the same settings already.
        parts: Parts of this process. A process with only the engine answers probes, serves metrics, and
            stands by while another engine is running. In a process with the API, a second engine is an error.
        replaced: Called when another engine has taken over; if None, this engine goes to standby again.
    """
    chosen = settings if settings is not None else load_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workspace = app.state.workspace = Workspace(chosen)
        following: asyncio.Task[None] | None = None
        await anyio.to_thread.run_sync(workspace.open)
        try:
            if "api" in parts:
                workspace.watch_commits()
                if app.state.traces is not None:
                    following = asyncio.create_task(app.state.traces.follow(workspace))
            if "engine" in parts:
                app.state.engine = workspace.new_engine_part(jvm, replaced)
                start = partial(app.state.engine.start, stand_by="api" not in parts)
                await anyio.to_thread.run_sync(start)
            app.state.wait_limiter = anyio.CapacityLimiter(MAX_WAITING_REQUESTS)
            app.state.idempotency_keys = set()
            yield
        finally:
            if following is not None:
                following.cancel()
                await anyio.to_thread.run_sync(app.state.traces.close)
            if app.state.engine is not None:
                await anyio.to_thread.run_sync(app.state.engine.stop)
            await anyio.to_thread.run_sync(workspace.close_catalog)

    app = _Application(
        chosen,
        title="Sluice",
        summary="Many continuous window joins, one shared Spark job.",
        version="1",
        lifespan=lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # FastAPI's own pages load their scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        max_body_size=chosen.server.max_body_bytes,
    )
    app.state.guard = guard_of(chosen)
    app.state.readers = Readers(app.state.guard)
    app.state.max_body_bytes = chosen.server.max_body_bytes
    app.state.engine = None
    app.state.takes_events = "api" in parts
    traces_url = chosen.log.traces_url
    app.state.traces = Traces(traces_url) if "api" in parts and traces_url is not None else None
    api = APIRouter(prefix=PREFIX)
    for router in (*(_OF_API if "api" in parts else ()), health_router, metrics_router):
        api.include_router(router)
    app.include_router(api)
    app.include_router(health_router, include_in_schema=False)
    app.include_router(metrics_router, include_in_schema=False)
    if "api" in parts:
        install_docs(app, PREFIX)
        install_console(app)
    problems.install(app)
    access = chosen.access
    describe(app, Security(needs_key(chosen), access.oidc_issuer, access.tls_client_ca is not None))
    return app
