"""The Containerfile: linted, and held against the package and the rest of ``deploy/``."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.deploy.containerfile import instructions
from tests.deploy.files import DEPLOY, ROOT, document

CONTAINERFILE = DEPLOY / "Containerfile"
STEPS = instructions(CONTAINERFILE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def last(name: str) -> str:
    """Return the text of the last instruction of a name, which counts."""
    return [step.text for step in STEPS if step.name == name][-1]


def environment() -> dict[str, str]:
    """Return the variables of the image."""
    pairs = " ".join(step.text for step in STEPS if step.name == "ENV" and step.stage == 1).split()
    return dict(pair.split("=", 1) for pair in pairs)


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, CONTAINERFILE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_builder_gets_what_the_wheel_is_made_of_and_nothing_else() -> None:
    build = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = {
        source
        for step in STEPS
        if step.name == "COPY" and step.stage == 0
        for source in step.text.split()[:-1]
    }
    of_project = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert copied == {*build, *of_project, "pyproject.toml", "constraints.txt"}
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n*\n")[1].splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert [line for line in ignored if not line.startswith("!")] == ["**/__pycache__"]


def test_the_image_runs_as_somebody_who_owns_the_volume_alone() -> None:
    uid, gid = last("USER").split(":")
    assert uid == gid == "10001"
    made = next(step.text for step in STEPS if "useradd" in step.text)
    assert f"--uid {uid} " in made
    assert "install -d --owner=sluice --group=sluice --mode=0700 /data" in made
    pod = document(DEPLOY / "kubernetes" / "base" / "engine.yaml")["spec"]["template"]["spec"]
    of_pod = pod["securityContext"]
    assert {of_pod["runAsUser"], of_pod["runAsGroup"], of_pod["fsGroup"]} == {int(uid)}


def test_what_runs_writes_into_the_volume() -> None:
    assert last("VOLUME") == '["/data"]'
    variables = environment()
    assert variables["SLUICE_DATA_DIR"] == "/data/sluice"  # not the volume itself, which has lost+found
    assert variables["NUMBA_CACHE_DIR"].startswith("/data/")


def test_extras_are_those_of_the_package() -> None:
    install = next(step.text for step in STEPS if "sluice-*.whl" in step.text)
    extras = install.partition(".whl)[")[2].partition("]")[0].split(",")
    assert extras == ["avro", "kafka", "oidc", "postgres", "traces"]
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["project"]["version"]
    compose = document(DEPLOY / "compose.yaml")["services"]["engine"]["image"]
    base = document(DEPLOY / "kubernetes" / "base" / "kustomization.yaml")["images"][0]
    shell = document(DEPLOY / "kubernetes" / "shell.yaml")["spec"]["containers"][0]["image"]
    assert compose == f"sluice:{version}"
    assert base["newTag"] == version
    assert shell == f"{base['newName']}:{version}"
    assert f"-t sluice:{version} ." in CONTAINERFILE.read_text(encoding="utf-8")
    assert labels()["version"] == version


def labels() -> dict[str, str]:
    """Return the labels of the image, without the prefix of the Open Container Initiative."""
    return dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', last("LABEL")))


def test_labels_are_those_of_the_package() -> None:
    project = PROJECT["project"]
    found = labels()
    assert found["title"].lower() == project["name"]
    assert found["description"] == project["description"]
    assert found["licenses"] == project["license"]


def test_no_build_tools_are_left() -> None:
    """The last stage gets an environment without pip, and loses the pip of the image that it begins from."""
    made = next(step.text for step in STEPS if "-m venv" in step.text)
    assert "-m venv --without-pip /opt/sluice" in made
    installed = [step.text for step in STEPS if step.name == "RUN" and step.stage == 1]
    assert any(re.search(r"pip uninstall --yes .*\bpip\b", text) for text in installed)
    assert not any(word in text for text in installed for word in ("gcc", "build-essential", "-jdk"))
    copied = [step.text for step in STEPS if step.name == "COPY" and step.stage == 1]
    assert copied == ["--from=build /opt/sluice /opt/sluice"]


class _Health(BaseHTTPRequestHandler):
    """Answers as a service does that lives."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health/live" else 404)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def test_the_health_check_asks_whether_the_service_lives() -> None:
    (check,) = (step for step in STEPS if step.name == "HEALTHCHECK")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Health) as server:
        url = f"127.0.0.1:{server.server_port}"
        command = [argument.replace("127.0.0.1:8080", url) for argument in check.arguments]
        assert url in command[-1]
        command[0] = sys.executable
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        alive = subprocess.run(command, capture_output=True, timeout=60)
        server.shutdown()
        thread.join()
    dead = subprocess.run(command, capture_output=True, timeout=60)
    assert (alive.returncode, dead.returncode) == (0, 1)
