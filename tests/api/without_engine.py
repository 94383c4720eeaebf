"""The real application over a real catalog, but without its engine: no Spark is started, no batch runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx
from fastapi import FastAPI

from api.app import create_app
from catalog.store.store import Store
from service.config.data_dir import open_data_dir
from service.config.settings import Settings
from service.inputs.inputs import Inputs
from service.inputs.sample import CatalogRows
from service.inputs.sources.http_log import EventLog
from service.planning.migrations import Migrations
from service.planning.objective import Objective
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.workspace.watcher import Watcher
from service.workspace.workspace import Workspace

COLUMNS = {"ts": "timestamp", "k": "bigint"}
CQL = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"


def a_stream(name: str, **source: str) -> dict[str, Any]:
    return {"name": name, "columns": COLUMNS, "event_time": "ts", "source": source or {"type": "http"}}


class Service:
    """The application over a catalog.

    Args:
        directory: Data directory.
    """

    def __init__(self, directory: Path) -> None:
        settings = Settings(data_dir=directory)
        workspace = self.workspace = Workspace(settings)
        workspace.data_dir = open_data_dir(directory)
        store = self.store = workspace.store = Store.open(workspace.data_dir.catalog_url)
        workspace.events = EventLog(workspace.data_dir.events_db)
        workspace._inputs = Inputs(store, workspace.events)
        statistician = Statistician(store, CatalogRows(store, workspace.events), buckets=2)
        workspace._versions = Versions(store, statistician, Objective())
        workspace.migrations = Migrations(workspace._versions)
        workspace._watcher = Watcher(store, interval_s=0.5)
        self.app: FastAPI = create_app(settings)
        self.app.state.workspace = workspace
        self.app.state.idempotency_keys = set()

    def close(self) -> None:
        self.workspace.events.close()
        self.store.close()

    def send(self, method: str, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
        """Send one request."""

        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test/api/v1") as client:
                headers = {} if key is None else {"Idempotency-Key": key}
                content = {} if body is None else {"json": body}
                return await client.request(method, path, headers=headers, **content)

        return anyio.run(sent)

    def made(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed."""
        answer = self.send(method, path, body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None
