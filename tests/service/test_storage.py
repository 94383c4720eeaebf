"""Segments, results and late rows in an object store: runs give the same rows, also on another machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalog.values.batch import ResultFile
from operators.storage.object_folder import ObjectFolder
from service.commit.commit import check_seen
from service.config.data_dir import open_data_dir
from service.config.settings import StorageSettings
from service.config.storage import Storage, storage_of
from service.errors import InvalidSetting, OtherLife, StorageDiffers
from service.recovery.identity import read_mark
from service.recovery.opening import open_catalog
from tests.crash.killing import SMALL
from tests.oracle import Oracle
from tests.s3 import S3Server
from tests.service.spark_logs import log_of
from tests.sluice_run import assert_equals_oracle, run
from tests.workloads import make_workload

#: Late rows, backfill, a residual, and changes while it runs.
SEED = 83


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_that_is_killed_goes_on_on_a_machine_without_its_cache(s3: S3Server, tmp_path: Path) -> None:
    spec, files = make_workload(SEED, tmp_path, SMALL)
    url = s3.new_url()
    environment = {"SLUICE_STORAGE_URL": url, "SLUICE_STORAGE_CACHE_DIR": str(tmp_path / "cache")}
    workload, out = tmp_path / "WORKLOAD.yaml", tmp_path / "out"

    killed = run(workload, out, environment=environment | {"SLUICE_FAILPOINT": "after-result-commit@2"})
    assert killed.returncode != 0
    shutil.rmtree(tmp_path / "cache")
    outcome = run(workload, out, environment=environment)

    assert_equals_oracle(outcome, out, Oracle(spec, files), "per-query")
    kinds = {name.partition("/")[0] for name in s3.objects(url)}
    assert kinds >= {"segments", "results", "late", "identity"}
    directory = out / "_sluice"
    assert not any(directory.glob("results/*"))
    assert not any(directory.glob("checkpoint/segments/*"))


def test_storage_of_another_catalog_is_refused(s3: S3Server, tmp_path: Path) -> None:
    storage = Storage(s3.new_url(), tmp_path / "cache", 1 << 20)
    open_catalog(open_data_dir(tmp_path / "one", storage=storage)).close()
    open_catalog(open_data_dir(tmp_path / "one", storage=storage)).close()
    with pytest.raises(OtherLife, match="does not belong to storage"):
        open_catalog(open_data_dir(tmp_path / "other", storage=storage))


def test_a_service_that_forgot_its_storage_is_refused(tmp_path: Path) -> None:
    mount = Storage(f"file://{tmp_path / 'mount'}", tmp_path / "cache", 1 << 20)
    open_catalog(open_data_dir(tmp_path / "one", storage=mount)).close()
    with pytest.raises(OtherLife, match="not the storage that the catalog has recorded"):
        open_catalog(open_data_dir(tmp_path / "one"))
    open_catalog(open_data_dir(tmp_path / "two")).close()
    with pytest.raises(OtherLife, match="not the storage that the catalog has recorded"):
        open_catalog(open_data_dir(tmp_path / "two", storage=mount))


def test_machines_of_a_cluster_have_data_directories_of_their_own(postgres_url: str, tmp_path: Path) -> None:
    mount = {
        "storage_url": f"file://{tmp_path / 'mount'}",
        "checkpoint_dir": tmp_path / "shared" / "checkpoint",
    }
    opened = []
    for name in ("api", "engine"):
        storage = StorageSettings(data_dir=tmp_path / name, **mount)
        opened.append(storage.open_data_dir())
        open_catalog(opened[-1], postgres_url).close()
    assert {data_dir.checkpoint for data_dir in opened} == {tmp_path / "shared" / "checkpoint"}
    marks = {read_mark(data_dir.identity)["id"] for data_dir in opened}
    assert marks == {read_mark(opened[0].checkpoint_identity)["id"]}
    assert not (tmp_path / "engine" / "checkpoint").exists()

    # What has been another catalog's, or has a checkpoint, is none of its directories.
    open_catalog(open_data_dir(tmp_path / "other")).close()
    with pytest.raises(OtherLife, match='does not belong to "'):
        open_catalog(StorageSettings(data_dir=tmp_path / "other", **mount).open_data_dir(), postgres_url)
    log_of(tmp_path / "begun")
    begun = StorageSettings(data_dir=tmp_path / "begun", storage_url=mount["storage_url"])
    with pytest.raises(OtherLife, match='does not belong to "'):
        open_catalog(begun.open_data_dir(), postgres_url)


def test_a_checkpoint_apart_without_its_segments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="SLUICE_STORAGE_URL") as refused:
        StorageSettings(data_dir=tmp_path, checkpoint_dir=tmp_path / "shared").open_data_dir()
    assert 'without "storage_url"' in str(refused.value)


@pytest.mark.parametrize("name", ["data_dir", "checkpoint_dir", "export_dir"])
def test_a_url_is_no_directory(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mount = {"data_dir": tmp_path / "data", "storage_url": f"file://{tmp_path / 'mount'}"}
    settings = StorageSettings(**(mount | {name: "s3a://bucket/checkpoint"}))
    with pytest.raises(InvalidSetting, match=f'"{name}" cannot be s3a://bucket/checkpoint') as refused:
        settings.open_data_dir()
    assert "SLUICE_STORAGE_URL" in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("hdfs://host/path", 'No storage has the scheme "hdfs"'),
        ("bucket/prefix", 'No storage has the scheme ""'),
        ("s3://", "name of the bucket is missing"),
        ("s3://key:secret@bucket/x", "come from the environment"),
        ("file://host/mnt", "does not contain an absolute path"),
    ],
)
def test_a_url_of_no_storage_is_refused(url: str, told: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        storage_of(url, None, 64)
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)


def test_no_url_keeps_everything_in_the_data_directory(tmp_path: Path) -> None:
    assert storage_of(None, None, 64) is None
    data_dir = open_data_dir(tmp_path)
    assert data_dir.results == tmp_path / "results"
    assert data_dir.segments == tmp_path / "checkpoint" / "segments"


def test_two_services_on_one_machine_have_caches_of_their_own(tmp_path: Path) -> None:
    one, other = (storage_of(f"s3://bucket/{name}", tmp_path, 64) for name in ("one", "other"))
    assert one is not None
    assert other is not None
    assert one.cache_dir != other.cache_dir
    folder = one.folder("results")
    assert isinstance(folder, ObjectFolder)
    assert folder.url == "s3://bucket/one/results"


def test_a_file_that_the_engine_does_not_see_stops_its_batch(tmp_path: Path) -> None:
    (tmp_path / "b1.parquet").write_bytes(b"1234")
    check_seen(tmp_path, [ResultFile("b1.parquet", "f", 1, bytes=4, crc32c=0)], {})
    with pytest.raises(StorageDiffers, match=r"b1\.parquet") as refused:
        check_seen(tmp_path, [ResultFile("b1.parquet", "f", 1, bytes=5, crc32c=0)], {})
    assert "is 4 bytes" in str(refused.value)
    with pytest.raises(StorageDiffers) as refused:
        check_seen(tmp_path, [ResultFile("b2.parquet", "f", 1, bytes=5, crc32c=0)], {})
    assert "is no such file" in str(refused.value)
    assert "SLUICE_STORAGE_URL" in str(refused.value)


def test_a_file_that_was_replaced_in_the_store_stops_its_batch(s3: S3Server, tmp_path: Path) -> None:
    url = s3.new_url()
    worker, engine = (ObjectFolder(tmp_path / name, url, 1 << 30) for name in ("worker", "engine"))
    worker.prepare()
    files = [ResultFile(name, "f", 1, bytes=4, crc32c=0) for name in ("b1.parquet", "b2.parquet")]
    for file in files:
        (worker / file.path).write_bytes(b"1234")
    etags = worker.publish([file.path for file in files])
    check_seen(engine, files, etags)
    s3.damage(url, "b2.parquet", b"5678")
    check_seen(engine, files, {})  # of a store that tells no ETags
    with pytest.raises(StorageDiffers, match=r"b2\.parquet") as refused:
        check_seen(engine, files, etags)
    assert etags["b2.parquet"] in str(refused.value)
