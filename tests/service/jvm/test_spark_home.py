import os
import subprocess
import sys
from pathlib import Path

from service.jvm.spark_home import link_home, packaged_home, spark_home


def test_a_home_that_is_given_is_taken(tmp_path: Path) -> None:
    assert spark_home("local[2]", {"SPARK_HOME": str(tmp_path)}) == tmp_path


def test_clusters_get_the_package_with_its_archives() -> None:
    assert spark_home("spark://host:7077", {}) == packaged_home()


def test_a_local_spark_has_a_home_without_the_archives_of_python_sources() -> None:
    home = spark_home("local[2]", {})

    assert (home / "bin" / "spark-submit").exists()
    assert os.path.samefile(home / "jars", packaged_home() / "jars")
    assert not (home / "python").exists()


def test_links_that_lead_elsewhere_are_mended(tmp_path: Path) -> None:
    old, new, home = tmp_path / "old", tmp_path / "new", tmp_path / "home"
    for packaged in (old, new):
        (packaged / "jars").mkdir(parents=True)
    link_home(old, home)

    assert link_home(new, home) == home

    assert os.readlink(home / "jars") == str(new / "jars")
    assert sorted(path.name for path in home.iterdir()) == ["jars"]


def test_a_jvm_is_launched_without_pyspark() -> None:
    code = "import sys, service.jvm.jvm; print('pyspark' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
