"""API and engine in one process or two, in the foreground or in a background thread."""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING

import uvicorn

from api.errors import AddressInUse, CredentialsMissing, EngineReplaced
from service.config.settings import Settings
from service.jvm.jvm import Jvm, launched

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from api.app import Part
    from service.workspace.workspace import Workspace

log = logging.getLogger(__name__)

#: Seconds after the grace period at which the process is ended by force, in case a thread never ends. The
#: next start repeats unfinished work, as after any crash.
FORCE_S = 15

#: Seconds after the stop signal at which open result streams are cut off.
GRACE_S = 3


def serve(settings: Settings, on_ready: Callable[[], None], *, parts: Iterable[Part]) -> None:
    """Serve until a signal comes.

    Args:
        settings: Settings of the service.
        on_ready: Called once requests are answered.
        parts: Parts of this process, ``api`` and ``engine``.

    Raises:
        AddressInUse: The port is taken.
        CredentialsMissing: Other machines could reach the service, but no client could prove its identity.
        SluiceError: The engine cannot start, for example because another engine holds the data directory.
        EngineReplaced: Another engine has taken over; only in a process without the API.
    """
    _check_access(settings)
    runs = frozenset(parts)
    address = settings.server
    port = address.port if "api" in runs else address.engine_port
    with _bound_socket(address.host, port) as listener, ExitStack() as ending:
        jvm = ending.enter_context(_launched(settings)) if "engine" in runs else None
        replaced = threading.Event()

        def end() -> None:
            replaced.set()
            server.should_exit = True

        inner = _create_app(settings, jvm, runs, None if "api" in runs else end)
        app = _Startup(inner, on_ready, ends_process=True)
        server = uvicorn.Server(_config(app, settings))
        # uvicorn raises the signal again after its shutdown, and exits itself if the start failed.
        with suppress(KeyboardInterrupt, SystemExit):
            server.run([listener])
        app.reraise()
        if replaced.is_set():
            raise EngineReplaced(
                "another engine has taken over",
                detail="This engine did not renew its catalog lease in time and has stopped writing.",
                hint="Start this engine again; it will then be on standby.",
            )


@contextmanager
def serving(settings: Settings) -> Iterator[Workspace]:
    """Serve in a background thread as long as the block runs, and yield the workspace.

    Raises:
        AddressInUse: The port is taken.
        SluiceError: The engine cannot start.
    """
    _check_access(settings)
    with _bound_socket(settings.server.host, settings.server.port) as listener, _launched(settings) as jvm:
        inner = _create_app(settings, jvm, frozenset({"api", "engine"}))
        app = _Startup(inner, lambda: None)
        server = uvicorn.Server(_config(app, settings))
        thread = threading.Thread(target=server.run, args=([listener],), name="api")
        thread.start()
        try:
            app.wait()
            app.reraise()
            yield inner.state.workspace
        finally:
            server.should_exit = True
            thread.join()


def _create_app(
    settings: Settings,
    jvm: Jvm | None,
    parts: frozenset[Part],
    replaced: Callable[[], None] | None = None,
) -> FastAPI:
    """Build the application; this imports FastAPI and all routes while the JVM starts."""
    from api.app import create_app

    return create_app(settings, jvm, parts, replaced)


@contextmanager
def _launched(settings: Settings) -> Iterator[Jvm]:
    """Launch Spark's JVM; its start takes about as long as the import of the application."""
    with launched(settings.spark, settings.storage.open_data_dir().spark_log) as jvm:
        yield jvm


def _check_access(settings: Settings) -> None:
    """Refuse a non-loopback address for which no credentials exist, unless ``insecure`` is set.

    Raises:
        CredentialsMissing: Other machines reach the address, but no client could prove its identity.
        UnusableCertificate: A certificate or key cannot be loaded.
    """
    from api.envelope.origins import is_loopback
    from api.server.tls import tls_options
    from service.recovery.opening import open_catalog

    access = settings.access
    tls_options(access)
    if is_loopback(settings.server.host) or access.insecure:
        return
    if access.oidc_issuer is not None or access.tls_client_ca is not None:
        return
    with closing(open_catalog(settings.storage.open_data_dir(), settings.storage.catalog_url)) as store:
        if store.api_keys.exist():
            return
    raise CredentialsMissing(
        f'"{settings.server.host}" can be reached from other machines, and there is no key',
        detail="Anyone who can reach the address could read and change everything.",
        hint="Make a key with sluice key create NAME --scope admin, or configure --tls-client-ca or a token "
        "issuer (SLUICE_OIDC_ISSUER). With --insecure, all clients are admitted without a key.",
    )


def _config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    # These imports load FastAPI, so they are delayed until the JVM is starting.
    from api.server.connections import ConnectionLimits, limited_protocol
    from api.server.loop import LOOP
    from api.server.tls import tls_options

    return uvicorn.Config(
        app,
        loop=LOOP,
        http=limited_protocol(ConnectionLimits(connections=settings.server.max_connections)),
        ws="none",
        server_header=False,
        # By default uvicorn trusts proxy headers from all clients on this machine.
        proxy_headers=bool(settings.access.trusted_proxies),
        forwarded_allow_ips=list(settings.access.trusted_proxies),
        **tls_options(settings.access),
        log_config=None,
        log_level="warning" if settings.log.level != "DEBUG" else "debug",
        access_log=settings.log.level == "DEBUG",
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
    )


@contextmanager
def _bound_socket(host: str, port: int) -> Iterator[socket.socket]:
    """Bind the port before the engine starts, because a start takes seconds."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(128)  # otherwise a second bind on the port would succeed
        except OSError as error:
            raise AddressInUse(
                f'cannot listen on "{host}:{port}"',
                detail=f"{error.strerror or error}.",
                hint="Choose another address with --host and --port.",
            ) from error
        yield listener


def _end_later() -> None:
    """End the process by force if it does not stop in time; its JVM ends with it."""

    def end() -> None:
        waiting = [thread.name for thread in threading.enumerate() if not thread.daemon]
        log.error("the service did not stop in time and ends", extra={"threads": waiting})
        os._exit(1)

    timer = threading.Timer(FORCE_S, end)
    timer.daemon = True
    timer.start()


class _Startup:
    """Application wrapper that keeps the error of a failed start, which uvicorn would only log."""

    def __init__(self, app: ASGIApp, on_ready: Callable[[], None], *, ends_process: bool = False) -> None:
        self._app = app
        self._on_ready = on_ready
        self._ends_process = ends_process
        self._done = threading.Event()
        self._error: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and self._ends_process:
                _end_later()
            return message

        async def watch(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                message = {"type": message["type"], "message": ""}  # told by reraise()
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                # Imported objects stay in memory. Without this call the garbage collector would scan all of
                # them repeatedly. The engine's thread makes the same call once it has loaded the other
                # modules.
                gc.freeze()
                self._done.set()
                self._on_ready()

        try:
            await self._app(scope, heard, watch)
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._done.set()

    def wait(self) -> None:
        """Wait until the application has started or failed."""
        self._done.wait()

    def reraise(self) -> None:
        """Raise the error with which the application's start or end failed, if any."""
        if self._error is not None:
            raise self._error
