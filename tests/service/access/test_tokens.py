"""Tokens of an OpenID Connect issuer that the test runs itself, on a loopback address."""

from __future__ import annotations

import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from service.access import issuer_keys
from service.access.issuer_keys import AGAIN_S, KEPT_S
from service.access.tokens import TokenVerifier
from service.errors import IssuerDown
from service.log import setup_logging
from tests.waiting import until


class Issuer:
    """An issuer of tokens: its discovery document, its published keys, and what it signs."""

    def __init__(self) -> None:
        self.keys = {"one": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
        self.asked: list[str] = []
        self.slow = threading.Event()
        self.slow.set()
        self.bodies: dict[str, bytes] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.slow.wait()
                body = issuer.bodies.get(self.path)
                if body is None:
                    body = json.dumps(issuer.answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.named = self.url
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> Any:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.named, "jwks_uri": f"{self.url}/keys"}
        found = [
            json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": kid, "use": "sig", "alg": "RS256"}
            for kid, key in self.keys.items()
        ]
        return {"keys": found}

    def token(self, kid: str = "one", **changed: Any) -> str:
        """Return a token; ``exp`` and ``nbf`` are in seconds from now."""
        claims = {
            "iss": self.url,
            "aud": "sluice",
            "sub": "ann",
            "exp": 60,
            "scope": "openid sluice:read ingest everything",
        }
        given = {name: value for name, value in (claims | changed).items() if value is not None}
        given |= {name: time.time() + given[name] for name in ("exp", "nbf") if name in given}
        return jwt.encode(given, self.keys[kid], algorithm="RS256", headers={"kid": kid})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


def test_a_token_says_who_and_what(issuer: Issuer) -> None:
    verifier, token = TokenVerifier(issuer.url, "sluice"), issuer.token()
    assert verifier.known(token) is None
    principal = verifier.verify(token)
    assert principal is not None
    assert (principal.name, principal.scopes) == ("token:ann", {"read", "ingest"})
    assert verifier.known(token) == principal
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": -60},
        {"exp": None},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://another.example"},
        {"sub": None},
        {"nbf": 600},
    ],
    ids=["expired", "without end", "for another", "for nobody", "of another", "of nobody", "not yet"],
)
def test_a_token_that_is_not_good_is_refused(issuer: Issuer, changed: dict[str, Any]) -> None:
    assert TokenVerifier(issuer.url, "sluice").verify(issuer.token(**changed)) is None


@pytest.mark.parametrize("scope", [5, {"read": True}, [["read"], 5]])
def test_a_scope_of_another_form_allows_nothing(issuer: Issuer, scope: Any) -> None:
    principal = TokenVerifier(issuer.url, "sluice").verify(issuer.token(scope=scope))

    assert principal is not None
    assert principal.scopes == frozenset()


@pytest.mark.parametrize(
    ("sub", "name"),
    [
        ("ops", "token:ops"),
        ("jürgen@example.org", "token:jürgen@example.org"),
        ("ops for boss", 'token:"ops for boss"'),
        ("a\nERROR service forged", 'token:"a\\nERROR service forged"'),
        ("\ud800\0\x1b[2J\u202e", 'token:"\\ud800\\u0000\\u001b[2J\\u202e"'),
        ("", 'token:""'),
        ('token:"', 'token:"token:\\""'),
    ],
)
def test_a_name_in_a_token_is_one_printable_word_that_no_key_has(issuer: Issuer, sub: str, name: str) -> None:
    principal = TokenVerifier(issuer.url, "sluice").verify(issuer.token(sub=sub))
    assert principal is not None
    assert principal.name == name
    assert name.isprintable()


def test_long_names_in_tokens_differ_by_their_end(issuer: Issuer) -> None:
    verifier = TokenVerifier(issuer.url, "sluice")
    names = {getattr(verifier.verify(issuer.token(sub="a" * 5000 + end)), "name", "") for end in "xyz"}
    assert len(names) == 3
    assert max(map(len, names)) < 150


def test_the_id_of_a_signing_key_breaks_no_line(issuer: Issuer, capsys: pytest.CaptureFixture[str]) -> None:
    issuer.keys["\n2026-01-01 00:00:00 ERROR forged \ud800\x1b[2J" + "k" * 20_000] = issuer.keys["one"]
    token = issuer.token(list(issuer.keys)[-1])
    del issuer.keys[list(issuer.keys)[-1]]
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    setup_logging()
    try:
        assert TokenVerifier(issuer.url, "sluice").verify(token) is None
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    line, end = capsys.readouterr().err.split("\n")
    assert (line.isprintable(), end, len(line) < 400) == (True, "", True)


@pytest.mark.parametrize("answered", ["/keys", "/.well-known/openid-configuration"])
@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff"])
def test_an_issuer_that_answers_something_else_is_said(issuer: Issuer, answered: str, body: bytes) -> None:
    issuer.bodies[answered] = body

    with pytest.raises(IssuerDown):
        TokenVerifier(issuer.url, "sluice").verify(issuer.token())


def _encoded(part: dict[str, Any]) -> str:
    return jwt.utils.base64url_encode(json.dumps(part).encode()).decode()


def test_a_forged_token_is_refused(issuer: Issuer) -> None:
    verifier = TokenVerifier(issuer.url, "sluice")
    header, body, signature = issuer.token().split(".")
    forged_body = jwt.utils.base64url_encode(
        jwt.utils.base64url_decode(body).replace(b"ann", b"bob")
    ).decode()
    public = RSAAlgorithm.to_jwk(issuer.keys["one"].public_key())
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})
    unsigned = jwt.encode(claims, None, algorithm="none", headers={"kid": "one"})
    # As if the published key were a secret that both know.
    start = ".".join(_encoded(part) for part in ({"alg": "HS256", "kid": "one"}, claims))
    seal = hmac.new(public.encode(), start.encode(), "sha256").digest()
    symmetric = f"{start}.{jwt.utils.base64url_encode(seal).decode()}"
    for token in (f"{header}.{forged_body}.{signature}", unsigned, symmetric, "a.b.c", "", "é" * 9):
        assert verifier.verify(token) is None, token


def test_a_new_key_of_the_issuer_is_found(issuer: Issuer) -> None:
    verifier = TokenVerifier(issuer.url, "sluice")
    assert verifier.verify(issuer.token()) is not None
    now_s = time.monotonic()
    verifier._keys._clock_s = lambda: now_s + AGAIN_S  # unknown keys have it asked every 30 s
    issuer.keys["two"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert verifier.verify(issuer.token("two")) is not None


def test_a_slow_issuer_delays_only_tokens_whose_key_is_not_there_yet(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = TokenVerifier(issuer.url, "sluice")
    assert verifier.verify(issuer.token()) is not None
    monkeypatch.setattr(issuer_keys, "TIMEOUT_S", 0.05)
    now_s = time.monotonic()
    verifier._keys._clock_s = lambda: now_s + KEPT_S  # the keys are old
    issuer.slow.clear()
    issuer.keys["two"] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert verifier.verify(issuer.token(nbf=-1)) is not None
    with pytest.raises(IssuerDown, match="does not answer"):
        verifier.verify(issuer.token("two"))
    assert verifier.verify(issuer.token(nbf=-2)) is not None
    issuer.slow.set()
    until(lambda: verifier._keys._answered is None)
    assert verifier.verify(issuer.token("two")) is not None


def test_a_remembered_token_ends_with_its_time(issuer: Issuer) -> None:
    now = [time.time()]
    verifier = TokenVerifier(issuer.url, "sluice", clock_s=lambda: now[0])
    token = issuer.token(exp=20)
    assert verifier.verify(token) is not None
    now[0] += 19
    assert verifier.known(token) is not None
    now[0] += 2
    assert verifier.known(token) is None


def test_an_issuer_that_is_away_or_another_is_said(issuer: Issuer) -> None:
    issuer.named = "https://another.example"
    with pytest.raises(IssuerDown, match=r'calls itself "https://another\.example"'):
        TokenVerifier(issuer.url, "sluice").verify(issuer.token())
    token = issuer.token()
    issuer.close()
    with pytest.raises(IssuerDown, match="cannot be reached"):
        TokenVerifier(issuer.url, "sluice").verify(token)
