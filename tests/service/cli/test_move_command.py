"""The command ``sluice move`` on directories without a batch, which need no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.config.data_dir import open_data_dir
from service.config.settings import Settings, load_settings
from service.engine.ownership.engine_lock import EngineLock
from service.errors import DataDirInUse, DataDirMoved, NoDataDir
from service.maintenance.move_command import move_command
from service.recovery.opening import open_catalog


def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "old", storage_cache_dir=tmp_path / "cache")


def test_it_says_how_the_service_goes_on(tmp_path: Path) -> None:
    open_catalog(open_data_dir(tmp_path / "old")).close()
    told: list[str] = []
    url = f"file://{tmp_path / 'mount'}"
    move_command(tmp_path / "new", settings(tmp_path), to=url, catalog_url=None, buckets=8, say=told.append)
    assert "no batch yet" in told[0]
    assert "in 8 buckets" in told[0]
    assert f"--data-dir {tmp_path / 'new'}" in told[0]
    assert f"SLUICE_STORAGE_URL {url}\n" in told[0]
    with pytest.raises(DataDirMoved):
        open_catalog(open_data_dir(tmp_path / "old"))


def test_a_directory_whose_engine_runs_is_refused(tmp_path: Path) -> None:
    data_dir = open_data_dir(tmp_path / "old")
    open_catalog(data_dir).close()
    lock = EngineLock(data_dir.engine_lock)
    lock.acquire()
    try:
        with pytest.raises(DataDirInUse):
            move_command(
                tmp_path / "new", settings(tmp_path), to=None, catalog_url=None, buckets=None, say=print
            )
    finally:
        lock.release()
    assert not (tmp_path / "new").exists()


def test_what_is_no_data_directory_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(NoDataDir):
        move_command(tmp_path / "new", settings(tmp_path), to=None, catalog_url=None, buckets=None, say=print)
    assert not (tmp_path / "old").exists()
