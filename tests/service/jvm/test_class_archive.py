import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.settings import SparkSettings
from service.jvm.class_archive import archive_file, archive_options, packaged_home, spark_home
from service.jvm.java import use_java


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    java, spark = tmp_path / "java", tmp_path / "spark"
    java.mkdir()
    (java / "release").write_text('JAVA_VERSION="17.0.1"')
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark.jar").write_text("jar")
    return java, spark


def test_the_home_is_the_given_one_or_pyspark_s(tmp_path: Path) -> None:
    assert spark_home({"SPARK_HOME": str(tmp_path)}) == tmp_path
    assert spark_home({}) == packaged_home()


@pytest.mark.parametrize("changed", ["java/release", "spark/jars/spark.jar", "spark/jars/other.jar"])
def test_another_java_or_spark_has_another_archive(
    homes: tuple[Path, Path], tmp_path: Path, changed: str
) -> None:
    before = archive_file(*homes, tmp_path)

    (tmp_path / changed).write_text("something else")

    assert archive_file(*homes, tmp_path) != before


def test_an_archive_is_used_where_there_is_one(tmp_path: Path) -> None:
    archive = tmp_path / "with space.jsa"
    assert archive_options(archive, SparkSettings(), {}) == ""

    archive.touch()

    assert archive_options(archive, SparkSettings(), {}) == f'"-XX:SharedArchiveFile={archive}"'


def test_a_jvm_under_flight_recorder_uses_no_archive(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.touch()
    option = "-XX:StartFlightRecording=filename=a.jfr"
    configured = SparkSettings(conf={"spark.driver.extraJavaOptions": option})

    assert archive_options(archive, configured, {}) == ""
    assert archive_options(archive, SparkSettings(), {"JAVA_TOOL_OPTIONS": option}) == ""


def test_a_jvm_starts_with_an_archive_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    archive = tmp_path / "broken.jsa"
    archive.write_bytes(b"no archive" * 1000)

    java = str(use_java() / "bin" / "java")
    done = subprocess.run([java, f"-XX:SharedArchiveFile={archive}", "-version"], capture_output=True)

    assert done.returncode == 0


def test_a_jvm_is_launched_without_pyspark() -> None:
    code = "import sys, service.jvm.jvm; print('pyspark' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
