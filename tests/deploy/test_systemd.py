"""The systemd units: hardened, given time to stop, and started again."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest

from api.serve import FORCE_S, GRACE_S
from service.config.settings import GROUPS
from tests.deploy.files import DEPLOY, tool

#: What the unit shuts the service out of; each is a setting of systemd.exec(5).
HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}


UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
#: Exposure that systemd-analyze may find, of 10.
MOST_EXPOSED = 3.0
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def section(unit: Path, name: str) -> dict[str, list[str]]:
    """Return the settings of a section; systemd allows a setting several times."""
    found: dict[str, list[str]] = {}
    current = ""
    for line in unit.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif line and not line.startswith("#") and current == name:
            setting, _, value = line.partition("=")
            found.setdefault(setting, []).append(value)
    return found


def service(unit: Path) -> dict[str, list[str]]:
    return section(unit, "Service")


@each_unit
def test_sections_are_those_of_a_service(unit: Path) -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.read(unit)
    assert parser.sections() == ["Unit", "Service", "Install"]


@each_unit
def test_the_service_may_write_to_its_own_directories_alone(unit: Path) -> None:
    found = service(unit)
    assert {name: found.get(name) for name in HARDENING} == {
        name: [value] for name, value in HARDENING.items()
    }
    assert found["User"] == ["sluice"]
    assert "ReadWritePaths" not in found
    variables = dict(pair.split("=", 1) for pair in found["Environment"])
    assert variables["SLUICE_DATA_DIR"].startswith(f"/var/lib/{found['StateDirectory'][0]}/")
    assert variables["NUMBA_CACHE_DIR"].startswith(f"/var/cache/{found['CacheDirectory'][0]}/")
    names = [name for name in variables if name.startswith("SLUICE_")]
    assert all(name.removeprefix("SLUICE_").lower() in GROUPS for name in names)


@each_unit
def test_what_compiles_while_it_runs_is_allowed_to(unit: Path) -> None:
    assert "MemoryDenyWriteExecute" not in service(unit)


@each_unit
def test_a_stop_has_the_time_that_it_may_take(unit: Path) -> None:
    found = service(unit)
    (timeout,) = found["TimeoutStopSec"]
    assert int(timeout) > FORCE_S + GRACE_S
    assert found["KillMode"] == ["mixed"]
    assert found["Restart"] == ["on-failure"]


def test_units_share_all_but_their_command() -> None:
    """So they have one data directory and the same settings; of the engine there are several."""
    api, engine = (service(unit) for unit in UNITS)
    assert [unit.name for unit in UNITS] == ["sluice-api.service", "sluice-engine@.service"]
    assert api.pop("ExecStart") == ["/opt/sluice/bin/sluice api"]
    assert engine.pop("ExecStart") == ["/opt/sluice/bin/sluice engine --port 808%i"]
    assert engine.pop("OOMPolicy") == ["continue"]
    assert api == engine


def test_the_example_of_settings_names_settings_and_is_for_the_file_that_units_read() -> None:
    text = (DEPLOY / "systemd" / "sluice.env.example").read_text(encoding="utf-8")
    named = re.findall(r"^#?([A-Z_]+)=", text, re.MULTILINE)
    assert set(named) > {"SLUICE_BUCKETS", "SLUICE_CATALOG_URL", "PGPASSWORD", "SLUICE_HOST"}
    for name in set(named) - {"PGPASSWORD"}:
        assert name.removeprefix("SLUICE_").lower() in GROUPS
    (file,) = service(UNITS[0])["EnvironmentFile"]
    assert file.removeprefix("-") in text


@pytest.fixture
def loaded(tmp_path: Path) -> list[Path]:
    """Units as systemd would load them: the program that they start is there, the engine has its number."""
    program = tmp_path / "sluice"
    program.touch(mode=0o755)
    units = []
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/sluice/bin/sluice", str(program))
        units.append(tmp_path / unit.name.replace("@", "@1"))
        units[-1].write_text(text)
    return units


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [tool("systemd-analyze"), *words]
    alone = {"PATH": os.environ["PATH"], "SYSTEMD_COLORS": "0"}
    return subprocess.run(command, env=alone, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_systemd_finds_no_fault(loaded: list[Path]) -> None:
    for unit in loaded:
        found = analyze("verify", "--man=no", unit)
        assert (found.returncode, found.stderr) == (0, "")
        unit.write_text(unit.read_text().replace("Type=exec", "Type=exce"))
        assert "exce" in analyze("verify", "--man=no", unit).stderr


@pytest.mark.slow
def test_little_of_the_machine_is_open_to_the_service(loaded: list[Path]) -> None:
    limit = f"--threshold={round(MOST_EXPOSED * 10)}"
    for unit in loaded:
        found = analyze("security", "--offline=true", limit, unit)
        assert found.returncode == 0, found.stdout + found.stderr
        assert "Overall exposure level" in found.stdout
        unit.write_text(
            unit.read_text().replace("ProtectSystem=strict", "").replace("SystemCallFilter=", "#")
        )
        unit.write_text(unit.read_text().replace("CapabilityBoundingSet=", "#"))
        assert analyze("security", "--offline=true", limit, unit).returncode == 1
