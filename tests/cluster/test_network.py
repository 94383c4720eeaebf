"""Hosts in network namespaces: what they share, and what is left of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cluster.network import Host, Network
from tests.cluster.sluice_cluster import wait_until


def run(host: Host, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*host.below, "sh", "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.mounts
def test_hosts_have_disks_of_their_own_and_a_network_that_can_be_cut(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with Network(tmp_path, ["one", "other"]) as net:
        one, other = net.add("one", shared), net.add("other", shared)
        assert (
            run(one, "hostname; echo 1 > /mnt/own; echo 2 > /tmp/own; echo 3 > /mnt/shared/own").stdout
            == "one\n"
        )
        assert run(other, "cat /mnt/own /tmp/own /mnt/shared/own").stdout == "3\n"
        refused = run(one, f"touch {Path(__file__).parent}/x /usr/x")
        assert refused.stderr.count("Read-only file system") == 2
        serve = [sys.executable, "-m", "http.server", "8000", "--directory", "/mnt"]
        server = net.start(other, serve, {})
        root = f"http://127.0.0.1:{net.relay(other, 8000)}"

        def answers() -> bool:
            try:
                return httpx.get(f"{root}/shared/own", timeout=1).text == "3\n"
            except httpx.TransportError:
                return False

        def nothing() -> str:
            return ""

        wait_until("it answers", answers, nothing)
        net.cut(other)
        assert not answers()
        net.mend(other)
        wait_until("it answers again", answers, nothing)
        assert [process.pid for process in other.processes("http.server")]
    assert server.returncode is not None


def test_a_machine_that_gives_no_namespaces_is_told_of(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from tests.cluster.network import Network\n"
        f"Network(Path({str(tmp_path)!r}), []).__enter__()"
    )
    less = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-c", script]
    ended = subprocess.run(less, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert ended.returncode != 0
    assert "Refused: no namespaces here" in ended.stderr
    assert "Operation not permitted" in ended.stderr
