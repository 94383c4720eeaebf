import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.settings import SparkSettings
from service.jvm import spark_home as module
from service.jvm.java import use_java
from service.jvm.spark_home import archive_options, link_home, packaged_home, prepared_home, spark_home


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    java, spark = tmp_path / "java", tmp_path / "spark"
    java.mkdir()
    (java / "release").write_text('JAVA_VERSION="17.0.1"')
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark.jar").write_text("jar")
    return java, spark


def test_a_home_that_is_given_is_taken(tmp_path: Path) -> None:
    assert spark_home("local[2]", tmp_path, {"SPARK_HOME": str(tmp_path)}) == tmp_path


def test_a_prepared_home_is_for_a_local_spark_alone(
    homes: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = tmp_path / "prepared"
    monkeypatch.setattr(module, "prepared_home", lambda java, packaged: prepared)
    assert spark_home("local[2]", homes[0], {}) == packaged_home()

    link_home(packaged_home(), prepared)

    assert spark_home("local[2]", homes[0], {}) == prepared
    assert spark_home("spark://host:7077", homes[0], {}) == packaged_home()


def test_a_linked_home_has_no_zip_files_of_python_sources(tmp_path: Path) -> None:
    home = link_home(packaged_home(), tmp_path / "home")

    assert (home / "bin" / "spark-submit").exists()
    assert os.path.samefile(home / "jars", packaged_home() / "jars")
    assert not (home / "python").exists()


@pytest.mark.parametrize("changed", ["java/release", "spark/jars/spark.jar", "spark/jars/other.jar"])
def test_another_java_or_spark_has_another_home(
    homes: tuple[Path, Path], tmp_path: Path, changed: str
) -> None:
    before = prepared_home(*homes, tmp_path)

    (tmp_path / changed).write_text("something else")

    assert prepared_home(*homes, tmp_path) != before


def test_an_archive_is_used_where_there_is_one(tmp_path: Path) -> None:
    home = tmp_path / "with space"
    home.mkdir()
    assert archive_options(home, SparkSettings(), {}) == ""

    (home / "classes.jsa").touch()

    assert archive_options(home, SparkSettings(), {}) == f'"-XX:SharedArchiveFile={home / "classes.jsa"}"'


def test_a_jvm_under_flight_recorder_uses_no_archive(tmp_path: Path) -> None:
    (tmp_path / "classes.jsa").touch()
    option = "-XX:StartFlightRecording=filename=a.jfr"
    configured = SparkSettings(conf={"spark.driver.extraJavaOptions": option})

    assert archive_options(tmp_path, configured, {}) == ""
    assert archive_options(tmp_path, SparkSettings(), {"JAVA_TOOL_OPTIONS": option}) == ""


def test_a_jvm_starts_with_an_archive_that_is_none(tmp_path: Path) -> None:
    archive = tmp_path / "broken.jsa"
    archive.write_bytes(b"no archive" * 1000)

    java = str(use_java() / "bin" / "java")
    done = subprocess.run([java, f"-XX:SharedArchiveFile={archive}", "-version"], capture_output=True)

    assert done.returncode == 0


def test_a_jvm_is_launched_without_pyspark() -> None:
    code = "import sys, service.jvm.jvm; print('pyspark' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
