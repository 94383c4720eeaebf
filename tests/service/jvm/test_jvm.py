import struct
import subprocess
from pathlib import Path

import pytest

from service.jvm.jvm import Jvm


def started(command: list[str], directory: Path) -> Jvm:
    directory.mkdir()
    server = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    return Jvm(process, {}, directory, directory / "log", server)


def test_a_jvm_says_where_it_is(tmp_path: Path) -> None:
    jvm = started(["cat"], tmp_path / "jvm")
    secret = "a secret"
    (jvm.directory / "address").write_bytes(struct.pack(">ii", 4711, len(secret)) + secret.encode())

    assert jvm.address() == {"PYSPARK_GATEWAY_PORT": "4711", "PYSPARK_GATEWAY_SECRET": secret}

    jvm.end()


def test_a_jvm_that_ends_at_its_start_is_not_waited_for(tmp_path: Path) -> None:
    jvm = started(["false"], tmp_path / "jvm")

    with pytest.raises(ConnectionError, match="ended at its start"):
        jvm.address()

    jvm.end()


def test_ending_closes_stdin_takes_the_directory_and_may_be_done_twice(tmp_path: Path) -> None:
    jvm = started(["cat"], tmp_path / "jvm")

    jvm.end()
    jvm.end()

    assert jvm.process.returncode == 0
    assert jvm.fork_server is not None
    assert jvm.fork_server.returncode == 0
    assert not jvm.directory.exists()
