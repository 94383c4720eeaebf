import subprocess
from pathlib import Path

import pytest

from service.jvm import java
from service.jvm.java import JavaMissing, find_java, java_version


def fake_java(home: Path, version: str) -> Path:
    """Make a Java home whose ``java -version`` says ``version``."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the machine's own."""
    monkeypatch.setattr(java, "SYSTEM_JAVAS", tmp_path / "jvm")
    monkeypatch.setattr(java, "packaged_java", lambda: None)


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25.0.2", 25)])
def test_the_version_is_read(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(fake_java(tmp_path, text) / "bin" / "java") == major


def test_what_is_not_a_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "17.0.1"), fake_java(tmp_path / "path", "21")

    assert find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}) == home
    assert find_java({"PATH": str(on_path / "bin")}) == on_path


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "home", "11.0.2"), fake_java(tmp_path / "jvm" / "java-21", "21.0.1")

    assert find_java({"JAVA_HOME": str(old), "PATH": ""}) == new


def test_none_at_all_is_one_error_that_says_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "home", "1.8.0_392")

    with pytest.raises(JavaMissing, match="no Java 17 or newer was found") as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""})

    assert caught.value.detail == f"{old} is Java 8."
    assert "apt-get install default-jre-headless" in str(caught.value.hint)


def test_the_packaged_java_is_called_without_the_module_it_lacks(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor arg do echo "[$arg]"; done\n')
    real.chmod(0o755)

    home = java.wrap_java(real, tmp_path / "home")
    done = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "*"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[-cp]\n[a b]\n[Main]\n[*]\n"
