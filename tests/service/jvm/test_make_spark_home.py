from pathlib import Path

import pytest

from service.documents.workload import bind_workload, check_sources, load_workload
from service.jvm.java import use_java
from service.jvm.make_spark_home import SparkHomeNotMade, jvm_arguments, make_home, write_workload
from service.jvm.spark_home import packaged_home


def test_classes_are_dumped_with_the_arguments_that_spark_is_started_with() -> None:
    home = packaged_home()

    arguments = jvm_arguments(use_java(), home)

    paths = arguments[arguments.index("-cp") + 1].split(":")
    assert (paths[0], paths[-1]) == (str(home / "conf"), f"{home / 'jars'}/*")
    assert "--add-modules=jdk.incubator.vector" in arguments


def test_the_run_that_loads_the_classes_is_a_workload(tmp_path: Path) -> None:
    loaded = load_workload(write_workload(tmp_path))

    check_sources(loaded)
    bind_workload(loaded)

    assert [query.name for query in loaded.queries] == ["q"]


def test_a_home_that_cannot_be_made_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    java, spark, homes = tmp_path / "java", tmp_path / "spark", tmp_path / "homes"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    (java / "bin" / "java").chmod(0o755)
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark.jar").write_text("jar")

    with pytest.raises(SparkHomeNotMade, match='"java" has failed with exit 1') as caught:
        make_home(java, spark, homes)

    assert caught.value.detail == "it is broken\n"
    assert list(homes.iterdir()) == []
