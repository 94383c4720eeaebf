from pathlib import Path

import pytest

from service.documents.workload import bind_workload, check_sources, load_workload
from service.errors import ClassArchiveNotMade
from service.jvm.class_archive import archive_file, spark_home
from service.jvm.java import use_java
from service.jvm.make_class_archive import WORKLOAD, make_archive


def test_the_run_that_loads_the_classes_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(WORKLOAD)

    loaded = load_workload(path)

    check_sources(loaded)
    bind_workload(loaded)

    assert [query.name for query in loaded.queries] == ["q"]


def test_an_archive_that_cannot_be_made_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    java, spark, archives = tmp_path / "java", tmp_path / "spark", tmp_path / "archives"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    (java / "bin" / "java").chmod(0o755)
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark.jar").write_text("jar")

    with pytest.raises(ClassArchiveNotMade, match='"java" has failed with exit 1') as caught:
        make_archive(java, spark, archives)

    assert caught.value.detail == "it is broken\n"
    assert list(archives.iterdir()) == []


@pytest.mark.slow
def test_an_archive_is_made_of_the_classes_of_a_run() -> None:
    assert make_archive(use_java(), spark_home()) == archive_file(use_java(), spark_home())
    assert archive_file(use_java(), spark_home()).exists()
