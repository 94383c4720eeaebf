"""A service for other machines: TLS, certificates of clients, keys, and when it does not start."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.api.certificates import Authority
from tests.api.running_service import RunningService, free_port
from tests.sluice_run import Command
from tests.sluice_run import sluice as sluice_process


def test_a_service_for_other_machines_does_not_start_without_keys(tmp_path: Path) -> None:
    done = sluice_process("serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path / "data"))

    assert done.returncode == 2
    assert '"0.0.0.0" can be reached from other machines, and there is no key' in done.stderr
    assert "sluice key create" in done.stderr


@pytest.mark.parametrize("damaged", ["missing", "no certificate", "another key"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, damaged: str) -> None:
    authority = Authority(tmp_path)
    signed, other = authority.sign("service"), authority.sign("other")
    if damaged == "missing":
        signed.cert.unlink()
    if damaged == "no certificate":
        signed.cert.write_text("x")
    key = other.key if damaged == "another key" else signed.key
    options = ["--data-dir", str(tmp_path / "data"), "--tls-cert", str(signed.cert), "--tls-key", str(key)]
    done = sluice_process("serve", *options)

    assert done.returncode == 2
    assert "the certificates cannot be used" in done.stderr
    assert str(signed.cert) in done.stderr


def test_keys_are_made_listed_and_revoked(sluice: Command, tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path / "data")]
    made = sluice("key", "create", "ann", "--scope", "read", "--scope", "ingest", "--rate", "5", *where)
    again = sluice("key", "create", "ann", "--scope", "read", *where)
    listed = sluice("key", "list", *where)
    revoked = sluice("key", "revoke", "ann", *where)

    assert made.stdout.startswith("sluice_")
    assert (again.returncode, 'key "ann" exists' in again.stderr) == (2, True)
    assert listed.stdout == "ann\tread,ingest\t5/s\n"
    assert (revoked.returncode, sluice("key", "list", *where).stdout) == (0, "")
    assert sluice("key", "revoke", "ann", *where).returncode == 2


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_clients_with_certificates_are_let_in_and_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed, client = authority.sign("service"), authority.sign("deployer")
    options = ["--tls-cert", str(signed.cert), "--tls-key", str(signed.key)]
    options += ["--tls-client-ca", str(authority.cert)]
    data, log = tmp_path / "data", tmp_path / "log.txt"
    with RunningService(data, log, free_port(), options=options, tls=authority.client(client)) as service:
        body = {"name": "A", "columns": {"ts": "timestamp"}, "event_time": "ts", "source": {"type": "http"}}
        service.ok("POST", "/streams", 201, json=body)
        (entry,) = service.ok("GET", "/audit", 200)["items"]
        assert (entry["actor"], entry["status"]) == ("certificate:deployer", 201)
        answer = service.http.get("/streams")
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        (tmp_path / "other").mkdir()
        stranger = Authority(tmp_path / "other").sign("deployer")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{service.root}/api/v1/streams", verify=authority.client(stranger))
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{service.root}/api/v1/streams", verify=authority.client())
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{service.root.replace('https', 'http')}/api/v1/streams")

        # A key decides before the certificate, and a key that is made while the service runs is good at once.
        made = sluice_process("key", "create", "ann", "--scope", "read", "--data-dir", str(data))
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert service.http.get("/streams", headers=headers).status_code == 200
        assert service.http.delete("/streams/A", headers=headers).status_code == 403
        assert sluice_process("key", "revoke", "ann", "--data-dir", str(data)).returncode == 0
        time.sleep(1.5)
        assert service.http.get("/streams", headers=headers).status_code == 401
