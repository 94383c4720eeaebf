"""Headers of webhooks: valid ones, the allowed receivers of a secret, and that no message shows it."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from catalog.documents.codec import decode, encode
from catalog.values.sink import WebhookSink
from catalog.values.stream import EnvSecret
from service.errors import InvalidSink, SecretMissing, SinkFailed
from service.sinks.changes.check_sink import check_sink
from service.sinks.webhook import Webhooks
from service.sinks.webhook_headers import sent_headers
from tests.service.sinks.receiver import Receiver
from tests.service.sinks.test_webhook import answering, read_request
from tests.service.sinks.world import HERE, World

HOOK = EnvSecret("SLUICE_SECRET_HOOK")
TOKEN = "Bearer 1f0c-secret"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as world:
        yield world


def post(world: World, url: str, *headers: tuple[str, str | EnvSecret]) -> None:
    """Post one batch with these headers, as read back from the catalog."""
    sink = WebhookSink(url, headers=headers)
    check_sink(sink, HERE)
    world.set_sink(sink)
    world.commit(2)
    world.store.sinks.resolve()
    record = world.present()
    assert record.sink == sink
    Webhooks(HERE).post(record, record.sink, world.delivery.results.page(world.series, None, 10))


def sent(*headers: tuple[str, str | EnvSecret]) -> Mapping[str, str]:
    """Headers as a receiver on this machine gets them."""
    return sent_headers(WebhookSink("http://127.0.0.1:9/x", headers=headers))


def test_headers_are_sent_with_their_secrets_beside_those_of_sluice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_SECRET_HOOK", TOKEN)
    monkeypatch.setenv("SLUICE_SECRET_HOOK_HOSTS", "hooks.example.org, 127.0.0.1")
    with Receiver() as receiver:
        post(world, f"{receiver.url}/x", ("X-Team", "alerts, all"), ("Authorization", HOOK))
        (request,) = receiver.requests
    assert (request.headers["x-team"], request.headers["authorization"]) == ("alerts, all", TOKEN)
    assert request.headers["content-type"] == "application/x-ndjson"
    assert request.headers["sluice-query"] == "q"


def test_a_secret_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("SLUICE_SECRET_HOOK_FILE", str(tmp_path / "hook"))
    monkeypatch.setenv("SLUICE_SECRET_HOOK_HOSTS", "127.0.0.1")
    assert sent(("Authorization", HOOK)) == {"Authorization": TOKEN}
    (tmp_path / "hook").unlink()
    with pytest.raises(SecretMissing, match=r'the file that "SLUICE_SECRET_HOOK_FILE" names cannot be read'):
        sent(("Authorization", HOOK))


@pytest.mark.parametrize("hosts", [None, "", "hooks.example.org", "127.0.0.1:9", "*"])
def test_a_secret_goes_to_no_host_that_the_operator_does_not_name(
    monkeypatch: pytest.MonkeyPatch, hosts: str | None
) -> None:
    monkeypatch.setenv("SLUICE_SECRET_HOOK", TOKEN)
    if hosts is not None:
        monkeypatch.setenv("SLUICE_SECRET_HOOK_HOSTS", hosts)
    with pytest.raises(SinkFailed, match=r'"SLUICE_SECRET_HOOK" may not be sent to "127\.0\.0\.1"') as caught:
        sent(("Authorization", HOOK))
    assert "SLUICE_SECRET_HOOK_HOSTS" in str(caught.value)


def test_a_secret_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_SECRET_HOOK_HOSTS", "127.0.0.1")
    with pytest.raises(SecretMissing, match='"SLUICE_SECRET_HOOK" is not set'):
        sent(("Authorization", HOOK))


@pytest.mark.parametrize("value", ["", "a\r\nX-Evil: b", "tökn", " hunter2", "a" * 5000])
def test_a_value_that_no_header_can_have_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SLUICE_SECRET_HOOK", value)
    monkeypatch.setenv("SLUICE_SECRET_HOOK_HOSTS", "127.0.0.1")
    with pytest.raises(SinkFailed, match='the value of "SLUICE_SECRET_HOOK" cannot be sent') as caught:
        sent(("Authorization", HOOK))
    assert value not in str(caught.value) or not value
    with pytest.raises(InvalidSink, match="has an invalid value") as refused:
        check_sink(WebhookSink("http://127.0.0.1/x", headers=(("X-Team", value),)), HERE)
    assert refused.value.path == ("headers", "X-Team")


def test_a_secret_that_a_receiver_repeats_is_told_to_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_SECRET_HOOK", TOKEN)
    monkeypatch.setenv("SLUICE_SECRET_HOOK_HOSTS", "127.0.0.1")

    def repeat(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 401 no 1f0c-secret here\r\nContent-Length: 0\r\n\r\n")

    with answering(repeat) as url, pytest.raises(SinkFailed) as caught:
        post(world, url, ("Authorization", HOOK))
    assert str(caught.value) == "the receiver answered 401 no *** here"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("Authorization", TOKEN)], '"Authorization" carries a secret'),
        ([("cookie", "a=b")], '"cookie" carries a secret'),
        ([("X-Api-Key", "abc")], '"X-Api-Key" carries a secret'),
        *(
            ([(name, "abc")], f'"{name}" carries a secret')
            for name in (
                "X_Api_Key",
                "x.api.key",
                "XAPIKEY",
                "X-Api-Key-Id",
                "X-Token-2",
                "Ocp-Apim-Subscription-Key",
                "X-Auth",
                "X_Passwd",
                "X-Session-Id",
                "X-Amz-Credential",
            )
        ),
        ([("X-Team", "Bearer abc")], '"X-Team" carries a secret'),
        ([("Content_Length", "5")], '"Content_Length" is reserved'),
        ([("x-gitlab-token", "abc")], '"x-gitlab-token" carries a secret'),
        ([("Host", "example.org")], '"Host" is reserved for Sluice'),
        ([("content-type", "text/csv")], '"content-type" is reserved for Sluice'),
        ([("Sluice-Batch", "1")], '"Sluice-Batch" is reserved for Sluice'),
        ([("Webhook-Signature", "v1,")], '"Webhook-Signature" is reserved for Sluice'),
        ([("X Team", "a")], '"X Team" has an invalid name'),
        ([("", "a")], '"" has an invalid name'),
        ([("X-Team", "a"), ("x-team", "b")], '"x-team" is given twice'),
        ([(f"X-{n}", "a") for n in range(21)], "21 headers are more than 20"),
    ],
)
def test_headers_that_cannot_be_are_refused(headers: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(InvalidSink) as caught:
        check_sink(WebhookSink("http://127.0.0.1/x", headers=tuple(headers)), HERE)
    assert reason in caught.value.primary
    assert "1f0c" not in str(caught.value)


def test_a_sink_of_before_there_were_headers_has_none() -> None:
    assert decode(WebhookSink, b'{"url": "http://a/x", "type": "webhook", "secret": null}').headers == ()
    sink = WebhookSink("http://a/x", headers=(("X", "a"), ("Authorization", HOOK)))
    assert decode(WebhookSink, encode(sink)) == sink
