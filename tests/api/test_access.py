"""Who is let in: hosts, origins, keys, scopes, limits, and what the audit log says."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import httpx
import pytest

from api.routes import SluiceRoute
from service.access import api_keys
from service.access.api_keys import create_key
from service.access.principal import Principal
from service.errors import InvalidKey
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
STREAM = stream_document("A")


@pytest.fixture
def open_service(tmp_path: Path) -> Iterator[Service]:
    """A service on a loopback address."""
    service = Service(tmp_path)
    yield service
    service.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Service]:
    """A service that may be reached from elsewhere."""
    service = Service(tmp_path, host="0.0.0.0")
    yield service
    service.close()


def sent(service: Service, method: str, path: str, **request: object) -> httpx.Response:
    return service.request(method, path, **request)


def key(service: Service, *scopes: str, name: str = "k", rate_per_s: int = 100) -> dict[str, str]:
    return {"Authorization": f"Bearer {create_key(service.store.api_keys, name, scopes, rate_per_s)}"}


def code(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    return response.status_code, response.json()["code"]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "127.8.9.1"])
def test_a_loopback_service_is_asked_by_its_address(open_service: Service, host: str) -> None:
    assert sent(open_service, "GET", "/streams", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "10.0.0.1",
        "",
        "a:b:c",
        "[::1",
        "127.0.0.1:1.evil.example",
        "127.0.0.1:99999",
        "localhost:80:80",
        "evil.example@127.0.0.1",
        "127.0.0.1/evil.example",
        "127.0.0.1#evil.example",
        "[::1].evil.example",
        "[127.0.0.1]x:1",
        "127.0.0.1,evil.example",
    ],
)
@pytest.mark.parametrize("path", ["/streams", "/docs", "/openapi.json", "/no/such/path"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(
    open_service: Service, host: str, path: str
) -> None:
    assert code(sent(open_service, "GET", path, headers={"Host": host})) == (421, "unknown-host")


@pytest.mark.parametrize("host", ["127.0.0.1:1.evil.example", "a b", "", "evil.example/x", "a:-1", "a:1:2"])
def test_a_host_that_is_none_is_refused_even_where_keys_are_required(guarded: Service, host: str) -> None:
    assert code(sent(guarded, "GET", "/streams", headers={"Host": host})) == (421, "unknown-host")


def test_two_hosts_are_refused(open_service: Service) -> None:
    headers = [("Host", "127.0.0.1"), ("Host", "localhost")]
    assert code(sent(open_service, "GET", "/streams", headers=headers)) == (421, "unknown-host")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "file://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_cannot_change_anything(
    open_service: Service, headers: dict[str, str]
) -> None:
    refused = sent(open_service, "POST", "/streams", json=STREAM, headers=headers)

    assert code(refused) == (403, "foreign-origin")
    assert open_service.store.streams.all() == ()


def test_pages_of_the_service_itself_and_links_to_it_go_on(open_service: Service) -> None:
    own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}

    assert sent(open_service, "POST", "/streams", json=STREAM, headers=own).status_code == 201
    assert sent(open_service, "GET", "/docs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_names_that_are_listed_are_hosts_and_origins(tmp_path: Path) -> None:
    service = Service(tmp_path, allowed_hosts="sluice.example.org, Other.example")
    headers = {"Host": "sluice.example.org:443", "Origin": "https://other.example"}

    assert sent(service, "POST", "/streams", json=STREAM, headers=headers).status_code == 201
    service.close()


def test_a_service_without_keys_beyond_loopback_knows_addresses_alone(tmp_path: Path) -> None:
    service = Service(tmp_path, host="0.0.0.0", insecure=True)

    assert sent(service, "GET", "/streams", headers={"Host": "10.1.2.3:8080"}).status_code == 200
    assert code(sent(service, "GET", "/streams", headers={"Host": "evil.example"}))[0] == 421
    service.close()


@pytest.mark.parametrize(
    "path", ["/engine:pause", "/engine:restart", "/queries/q:pause", "/streams", "/changes"]
)
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"])
def test_a_body_is_json_also_where_it_is_not_looked_at(open_service: Service, path: str, kind: str) -> None:
    refused = sent(open_service, "POST", path, content=b"a=1", headers={"Content-Type": kind})

    assert code(refused) == (415, "unsupported-media-type")


def test_beyond_loopback_every_operation_but_the_probes_asks_for_a_key(guarded: Service) -> None:
    asked = 0
    for path, item in guarded.app.openapi()["paths"].items():
        for method, operation in item.items():
            filled = path.removeprefix("/api/v1").format(name="n", version="1", id="1")
            answer = sent(guarded, method.upper(), filled)
            if path.endswith(("/health/live", "/health/ready")):
                assert answer.status_code != 401
                assert operation["security"] == []
                continue
            assert code(answer) == (401, "unauthenticated"), f"{method} {path}"
            assert answer.headers["www-authenticate"] == "Bearer"
            assert operation["security"][0].keys() == {"key"}, f"{method} {path}"
            assert {"401", "403", "429"} <= operation["responses"].keys()
            asked += 1
    assert asked > 20


def test_no_route_goes_round_the_guard(guarded: Service) -> None:
    for path in ("/metrics", "/api/v1/metrics"):
        answer = httpx_at_root(guarded, path)
        assert answer.status_code == 401
    for route in guarded.app.routes:
        path = getattr(route, "path", "")
        if not isinstance(route, SluiceRoute) and path:
            # The console is files without data; what it shows it asks of guarded routes.
            assert re.search(r"/(docs|redoc|openapi.json)|^/$|^/console\b", path), path


def httpx_at_root(service: Service, path: str) -> httpx.Response:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(service.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return anyio.run(get)


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("read", {"GET"}), ("write", {"POST"}), ("ingest", {"events"}), ("admin", {"engine", "audit"})],
)
def test_a_key_does_what_its_scopes_say_and_nothing_else(
    guarded: Service, scope: str, allowed: set[str]
) -> None:
    headers = key(guarded, scope)
    wanted = {
        "GET": ("GET", "/streams", None),
        "POST": ("POST", "/streams", {}),
        "events": ("POST", "/streams/A/events", []),
        "engine": ("POST", "/engine:pause?no_such=1", None),
        "audit": ("GET", "/audit", None),
    }
    for name, (method, path, body) in wanted.items():
        status = sent(guarded, method, path, json=body, headers=headers).status_code
        assert (status == 403) == (name not in allowed), (name, status)


def test_keys_are_hashed_and_revoked_ones_are_refused_within_a_second(guarded: Service) -> None:
    headers = key(guarded, "read", name="reader")
    secret = headers["Authorization"].split("_", 2)[2]  # which may have a "_" itself
    assert sent(guarded, "GET", "/streams", headers=headers).status_code == 200
    (stored,) = guarded.store.api_keys.all()

    assert stored.secret_hash.startswith("$argon2id$v=19$")
    assert secret not in repr(stored)
    guarded.store.api_keys.revoke("reader")
    guarded.workspace.keys._clock_s = lambda: float("inf")
    assert code(sent(guarded, "GET", "/streams", headers=headers)) == (401, "unauthenticated")


def test_a_key_that_an_earlier_version_hashed_stays_good(guarded: Service) -> None:
    secret = "s" * 43
    salt, digest = (
        b"0123456789abcdef",
        hashlib.scrypt(secret.encode(), salt=b"0123456789abcdef", n=2**14, r=8, p=1),
    )
    stored = f"scrypt$16384$8$1${b64encode(salt).decode()}${b64encode(digest).decode()}"
    guarded.store.api_keys.add("0123456789ab", "old", ("read",), stored, 100)

    for sent_secret, status in ((secret, 200), ("t" * 43, 401)):
        headers = {"Authorization": f"Bearer sluice_0123456789ab_{sent_secret}"}
        assert sent(guarded, "GET", "/streams", headers=headers).status_code == status


@pytest.mark.parametrize("sent_key", ["Bearer sluice_x", "Basic YTpi", "Bearer ", "Bearer é", "sluice_", ""])
def test_a_header_that_is_no_key_is_refused_also_on_loopback(open_service: Service, sent_key: str) -> None:
    headers = {"Authorization": sent_key.encode("latin-1")}

    assert code(sent(open_service, "GET", "/streams", headers=headers)) == (401, "unauthenticated")


def test_a_key_with_another_secret_is_refused_and_guessing_is_slowed_down(guarded: Service) -> None:
    guarded.app.state.guard._unknown._clock_s = lambda: 0.0
    good = key(guarded, "read")
    guess = {"Authorization": good["Authorization"][:-43] + "A" * 43}
    answers = [code(sent(guarded, "GET", "/streams", headers=guess)) for _ in range(20)]

    assert answers[0] == (401, "unauthenticated")
    assert answers[-1] == (429, "too-many-requests")
    assert sum(status == 401 for status, _ in answers) <= 12


def test_guesses_keep_no_holder_of_a_good_key_out(guarded: Service) -> None:
    guarded.app.state.guard._unknown._clock_s = lambda: 0.0
    good, revoked = key(guarded, "read"), key(guarded, "read", name="revoked")
    guess = {"Authorization": good["Authorization"][:-43] + "A" * 43}
    assert [sent(guarded, "GET", "/streams", headers=h).status_code for h in (good, revoked)] == [200, 200]
    guarded.store.api_keys.revoke("revoked")
    for _ in range(20):
        sent(guarded, "GET", "/streams", headers=guess)
    guarded.workspace.keys._clock_s = lambda: float("inf")  # it asks the catalog again

    assert sent(guarded, "GET", "/streams", headers=good).status_code == 200
    assert code(sent(guarded, "GET", "/streams", headers=revoked)) == (401, "unauthenticated")
    assert code(sent(guarded, "GET", "/streams", headers=revoked)) == (429, "too-many-requests")
    assert code(sent(guarded, "GET", "/streams", headers=guess)) == (429, "too-many-requests")


def test_guesses_that_are_sent_at_one_time_are_slowed_down_too(guarded: Service) -> None:
    guarded.app.state.guard._unknown._clock_s = lambda: 0.0
    guess = {"Authorization": key(guarded, "read")["Authorization"][:-43] + "A" * 43}
    answers: list[int] = []

    async def send_all() -> None:
        transport = httpx.ASGITransport(guarded.app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client,
            anyio.create_task_group() as group,
        ):

            async def send() -> None:
                answers.append((await client.get("/streams", headers=guess)).status_code)

            for _ in range(40):
                group.start_soon(send)

    anyio.run(send_all)

    assert sorted(set(answers)) == [401, 429]
    assert answers.count(401) <= 12


def test_guesses_do_not_delay_keys_that_were_verified(guarded: Service) -> None:
    """Each guess waits until a key that was verified before has been served."""
    headers = key(guarded, "read")
    assert sent(guarded, "GET", "/streams", headers=headers).status_code == 200
    verifier = guarded.workspace.keys
    verifier._clock_s = lambda: time.monotonic() + 60  # the catalog is asked again
    served, verify = threading.Event(), verifier.verify

    def slow(text: str) -> Principal | None:
        if not text.endswith("A" * 43):
            return verify(text)
        assert served.wait(60)
        return None

    guarded.app.state.guard.tokens = None
    verifier.verify = slow  # type: ignore[method-assign]  # a hash that takes long

    async def send_all() -> None:
        transport = httpx.ASGITransport(guarded.app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1") as client,
            anyio.create_task_group() as group,
        ):
            for number in range(8):
                guess = {"Authorization": f"Bearer sluice_{number:012x}_{'A' * 43}"}
                group.start_soon(partial(client.get, "/streams", headers=guess))
            while not guarded.app.state.guard._waiting:
                await anyio.sleep(0.001)
            assert (await client.get("/streams", headers=headers)).status_code == 200
            served.set()

    anyio.run(send_all)


def test_an_unknown_id_costs_as_many_hashes_as_a_known_one(
    guarded: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time tells nobody which ids exist: known, unknown and revoked ids are hashed alike."""
    right = key(guarded, "read")["Authorization"].removeprefix("Bearer ")
    gone = key(guarded, "read", name="gone")["Authorization"].removeprefix("Bearer ")
    guarded.store.api_keys.revoke("gone")
    hashed: list[str] = []
    real = api_keys._is_of

    def counted(secret: str, stored: str) -> bool:
        hashed.append(stored.rpartition("$")[0].rpartition("$")[0])
        return real(secret, stored)

    monkeypatch.setattr(api_keys, "_is_of", counted)
    for text in (right[:-43] + "A" * 43, f"sluice_{'0' * 12}_{'A' * 43}", gone[:-43] + "A" * 43, gone):
        assert guarded.workspace.keys.verify(text) is None
    assert hashed == [hashed[0]] * 4  # the same parameters
    assert guarded.workspace.keys.verify(right) is not None


def test_a_key_has_a_limit_of_requests(guarded: Service) -> None:
    guarded.app.state.guard._limits._clock_s = lambda: 0.0
    headers, other = key(guarded, "read", rate_per_s=2), key(guarded, "read", name="other")
    answers = [sent(guarded, "GET", "/streams", headers=headers) for _ in range(6)]

    assert [answer.status_code for answer in answers[:4]] == [200] * 4
    assert code(answers[-1]) == (429, "too-many-requests")
    assert answers[-1].headers["retry-after"] == "1"
    assert sent(guarded, "GET", "/streams", headers=other).status_code == 200


def test_history_and_audit_log_name_the_key(guarded: Service) -> None:
    writer, admin = key(guarded, "write", name="deployer"), key(guarded, "admin", name="boss")
    for name in ("A", "B"):
        assert sent(guarded, "POST", "/streams", json=stream_document(name), headers=writer).is_success
    for name, actor in (("q1", {}), ("q2", {"X-Actor": "ann"})):
        query = {"name": name, "cql": CQL}
        assert sent(guarded, "POST", "/queries", json=query, headers=writer | actor).is_success
    refused = sent(guarded, "DELETE", "/streams/A", headers=writer | {"X-Request-Id": "mine-1"})
    assert refused.status_code == 409

    page = sent(guarded, "GET", "/audit?limit=3", headers=admin).json()
    rest = sent(guarded, "GET", f"/audit?after={page['next_cursor']}", headers=admin).json()
    entries = page["items"] + rest["items"]
    assert [(e["actor"], e["method"], e["path"], e["status"]) for e in entries] == [
        ("deployer", "POST", "/api/v1/streams", 201),
        ("deployer", "POST", "/api/v1/streams", 201),
        ("deployer", "POST", "/api/v1/queries", 202),
        ("deployer", "POST", "/api/v1/queries", 202),
        ("deployer", "DELETE", "/api/v1/streams/A", 409),
    ]
    assert entries[-1]["request_id"] == "mine-1"
    assert not rest["has_more"]
    actors = [entry.actor for entry in guarded.store.plan_history.page()]
    assert actors[-2:] == ["deployer", "deployer for ann"]


@pytest.mark.parametrize("name", ["anonymous", "token:ops", "ops for boss", "a\nb", ""])
def test_a_key_cannot_be_named_as_another_client_is(guarded: Service, name: str) -> None:
    with pytest.raises(InvalidKey, match="cannot be named"):
        key(guarded, "read", name=name)


def test_the_audit_log_shows_paths_and_addresses_in_one_line(guarded: Service) -> None:
    writer = key(guarded, "write")
    for path in ("/streams/a%00b%1B%E2%80%AE", "/streams/" + "a" * 5000):
        assert sent(guarded, "DELETE", path, headers=writer).status_code == 404
    entries = guarded.store.audit_log.page()
    assert entries[0].path == "/api/v1/streams/a\\x00b\\x1b\\u202e"
    assert len(entries[1].path) == 501


@pytest.mark.parametrize("actor", [b"a\x85b", b"a\tb", b"\x9b2J"])
def test_an_author_that_cannot_be_printed_is_refused(open_service: Service, actor: bytes) -> None:
    answer = sent(open_service, "POST", "/changes", json={"changes": []}, headers={"X-Actor": actor})
    assert code(answer) == (422, "invalid-request")


@pytest.mark.parametrize("sent_id", [b"a b", b"a\x85b", b"x" * 65, b"\xff", b""])
def test_a_request_id_that_is_not_safe_is_replaced(open_service: Service, sent_id: bytes) -> None:
    answer = sent(open_service, "GET", "/streams", headers={"X-Request-Id": sent_id})
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])


def test_without_keys_a_change_is_in_the_audit_log_as_anonymous(open_service: Service) -> None:
    open_service.made("POST", "/streams", STREAM)
    assert open_service.send("POST", "/queries:validate", {"cql": "x"}).status_code == 422

    (entry,) = open_service.store.audit_log.page()
    assert (entry.actor, entry.address, entry.status) == ("anonymous", "127.0.0.1", 201)


def test_a_body_that_is_announced_to_be_too_large_is_refused_before_it_is_sent(open_service: Service) -> None:
    headers = {"Content-Length": str((64 << 20) + 1), "Content-Type": "application/json"}
    response = sent(open_service, "POST", "/streams/A/events", headers=headers, content=b"[]")

    assert code(response) == (413, "body-too-large")
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/streams", "/docs", "/no/such/path", "/streams?no_such=1"])
def test_every_answer_has_a_request_id_and_headers_for_browsers(open_service: Service, path: str) -> None:
    answer = sent(open_service, "GET", path, headers={"X-Request-Id": "bad\tid"})

    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_settings_say_when_a_key_is_asked_for(tmp_path: Path) -> None:
    service = Service(tmp_path, require_keys=True)

    assert code(sent(service, "GET", "/streams"))[0] == 401
    service.close()
