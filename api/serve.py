"""The API and the engine in one process, in front or in the background of the caller."""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import uvicorn

from api.errors import AddressInUse
from service.config.data_dir import open_data_dir
from service.config.settings import LogSettings, ServerSettings, Settings
from service.jvm.jvm import Jvm, launched

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from service.workspace.workspace import Workspace

log = logging.getLogger(__name__)

#: A stop that takes longer than this, after the grace, ends by force: a thread waits for what never comes.
#: What is not done is repeated at the next start, as after any crash.
FORCE_S = 15

#: Open result streams are cut so many seconds after the signal to stop.
GRACE_S = 3


def serve(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Serve until a signal comes.

    Args:
        settings: Settings of the service.
        on_ready: Called once requests are answered.

    Raises:
        AddressInUse: The port is taken.
        SluiceError: The engine cannot start, for example because another one holds the data directory.
    """
    with _bound_socket(settings.server) as listener, _launched(settings) as jvm:
        app = _Startup(_create_app(settings, jvm), on_ready, ends_process=True)
        server = uvicorn.Server(_config(app, settings.log))
        # uvicorn raises the signal again when it has shut down, and exits by itself when the start failed.
        with suppress(KeyboardInterrupt, SystemExit):
            server.run([listener])
        app.reraise()


@contextmanager
def serving(settings: Settings) -> Iterator[Workspace]:
    """Serve in a background thread as long as the block runs, and yield the workspace that is served.

    Raises:
        AddressInUse: The port is taken.
        SluiceError: The engine cannot start.
    """
    with _bound_socket(settings.server) as listener, _launched(settings) as jvm:
        inner = _create_app(settings, jvm)
        app = _Startup(inner, lambda: None)
        server = uvicorn.Server(_config(app, settings.log))
        thread = threading.Thread(target=server.run, args=([listener],), name="api")
        thread.start()
        try:
            app.wait()
            app.reraise()
            yield inner.state.workspace
        finally:
            server.should_exit = True
            thread.join()


def _create_app(settings: Settings, jvm: Jvm) -> FastAPI:
    """Build the application; FastAPI and all routes are imported here, while the JVM starts."""
    from api.app import create_app

    return create_app(settings, jvm)


@contextmanager
def _launched(settings: Settings) -> Iterator[Jvm]:
    """Launch Spark's JVM, which takes as long to start as the application to be imported."""
    with launched(settings.spark, open_data_dir(settings.storage.data_dir).spark_log) as jvm:
        yield jvm


def _config(app: ASGIApp, log: LogSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning" if log.level != "DEBUG" else "debug",
        access_log=log.level == "DEBUG",
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
    )


@contextmanager
def _bound_socket(server: ServerSettings) -> Iterator[socket.socket]:
    """Take the port before the engine starts, which takes seconds."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((server.host, server.port))
            listener.listen(128)  # without it a second bind on the port succeeds
        except OSError as error:
            raise AddressInUse(
                f'cannot listen on "{server.host}:{server.port}"',
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
    """Keeps the error with which the application's start failed; uvicorn would only log its traceback."""

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
                # What has been imported stays; without this the collector looks at all of it while it serves.
                # The engine's thread does the same once it has loaded the rest.
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
        """Raise what the start or the end of the application failed with."""
        if self._error is not None:
            raise self._error
