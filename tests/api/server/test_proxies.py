"""What a proxy says of a request's client is believed of those that the settings name, and of nobody else."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from api.serve import _config
from service.config.settings import load_settings
from service.errors import InvalidSetting
from tests.waiting import until

FORWARDED = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https"}


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the client's address and the scheme."""
    if scope["type"] == "http":
        await JSONResponse([scope["client"][0], scope["scheme"]])(scope, receive, send)


@pytest.mark.parametrize(
    ("proxies", "told"),
    [
        ("", ["127.0.0.1", "http"]),
        ("10.0.0.0/8,::1", ["127.0.0.1", "http"]),
        ("10.0.0.0/8,127.0.0.1", ["6.6.6.6", "https"]),
    ],
)
def test_only_a_proxy_that_is_named_says_who_asks(
    proxies: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # which uvicorn would heed
    config = _config(tell, load_settings(data_dir=tmp_path, trusted_proxies=proxies))
    config.lifespan = "off"
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            until(lambda: server.started, lambda: "it does not start")
            answer = httpx.get(f"http://127.0.0.1:{listener.getsockname()[1]}/", headers=FORWARDED)
        finally:
            server.should_exit = True
            thread.join()

    assert json.loads(answer.text) == told


def test_a_proxy_is_named_by_its_address(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="trusted_proxies"):
        load_settings(data_dir=tmp_path, trusted_proxies="proxy.example.org")
