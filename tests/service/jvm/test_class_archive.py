import subprocess
from pathlib import Path

import pytest

from service.documents.workload import bind_workload, check_sources, load_workload
from service.jvm.class_archive import archive_options, archive_path
from service.jvm.java import use_java
from service.jvm.make_class_archive import ArchiveNotMade, jvm_arguments, make_archive, write_workload
from service.jvm.spark_home import spark_home


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    java, spark = tmp_path / "java", tmp_path / "spark"
    java.mkdir()
    (java / "release").write_text('JAVA_VERSION="17.0.1"')
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark.jar").write_text("jar")
    return java, spark


def test_an_archive_is_used_where_there_is_one(homes: tuple[Path, Path], tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    assert archive_options(*homes, directory) == ""

    directory.mkdir()
    archive = archive_path(*homes, directory)
    archive.touch()

    assert archive_options(*homes, directory) == f'"-XX:SharedArchiveFile={archive}"'


@pytest.mark.parametrize("changed", ["java/release", "spark/jars/spark.jar", "spark/jars/other.jar"])
def test_another_java_or_spark_has_another_archive(
    homes: tuple[Path, Path], tmp_path: Path, changed: str
) -> None:
    before = archive_path(*homes, tmp_path)

    (tmp_path / changed).write_text("something else")

    assert archive_path(*homes, tmp_path) != before


def test_a_jvm_starts_with_an_archive_that_is_none(tmp_path: Path) -> None:
    archive = tmp_path / "broken.jsa"
    archive.write_bytes(b"no archive" * 1000)

    java = str(use_java() / "bin" / "java")
    done = subprocess.run([java, f"-XX:SharedArchiveFile={archive}", "-version"], capture_output=True)

    assert done.returncode == 0


def test_classes_are_dumped_with_the_arguments_that_spark_is_started_with() -> None:
    home = spark_home("local")

    arguments = jvm_arguments(use_java(), home)

    paths = arguments[arguments.index("-cp") + 1].split(":")
    assert (paths[0], paths[-1]) == (str(home / "conf"), f"{home / 'jars'}/*")
    assert "--add-modules=jdk.incubator.vector" in arguments


def test_the_run_that_loads_the_classes_is_a_workload(tmp_path: Path) -> None:
    loaded = load_workload(write_workload(tmp_path))

    check_sources(loaded)
    bind_workload(loaded)

    assert [query.name for query in loaded.queries] == ["q"]


def test_what_cannot_be_made_is_told_and_leaves_nothing(homes: tuple[Path, Path], tmp_path: Path) -> None:
    java, spark = homes
    (java / "bin").mkdir()
    (java / "bin" / "java").write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    (java / "bin" / "java").chmod(0o755)

    with pytest.raises(ArchiveNotMade, match='"java" has failed with exit 1') as caught:
        make_archive(java, spark, tmp_path / "classes")

    assert caught.value.detail == "it is broken\n"
    assert not (tmp_path / "classes").exists()
