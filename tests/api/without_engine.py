"""The real application over a real catalog, but without its engine: no Spark is started, no batch runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
from fastapi import FastAPI

from api.app import create_app
from service.config.settings import load_settings
from service.workspace.workspace import Workspace
from tests.empty_catalog import write_empty_catalog

CQL = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"


class Service:
    """The application over a catalog.

    Args:
        directory: Data directory.
        **settings_given: Settings by their flat names, beside two that are there unless they are given: files
            may be read from anywhere beside the data directory, and receivers of webhooks be of this machine.
    """

    def __init__(self, directory: Path, **settings_given: object) -> None:
        beside = {"source_roots": str(directory.parent), "webhook_hosts": "127.0.0.1"}
        loaded = load_settings(data_dir=directory, **(beside | settings_given))
        if loaded.storage.catalog_url is None:
            write_empty_catalog(directory / "catalog.db")
        workspace = self.workspace = Workspace(loaded)
        workspace.open()
        self.store = workspace._store
        self.app: FastAPI = create_app(loaded)
        self.app.state.workspace = workspace
        self.app.state.idempotency_keys = set()

    def close(self) -> None:
        self.workspace.close_catalog()

    def send(self, method: str, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
        """Send one request."""
        text = None if body is None else json.dumps(body)
        return self.send_text(method, path, text, {} if key is None else {"Idempotency-Key": key})

    def send_text(
        self, method: str, path: str, text: str | bytes | None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send one request with a body as it is written."""
        sent = {} if text is None else {"Content-Type": "application/json"}
        return self.request(method, path, headers=sent | dict(headers or {}), content=text)

    def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send one request, with what httpx takes."""

        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client:
                return await client.request(method, path, **request)

        return anyio.run(sent)

    def ok(self, method: str, path: str, status: int, **request: Any) -> Any:
        """Return the JSON body of a request that must be answered with ``status``."""
        answer = self.request(method, path, **request)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def made(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed."""
        answer = self.send(method, path, body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None
