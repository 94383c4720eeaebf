"""The systemd units: hardened, given time to stop, and started again."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from api.serve import FORCE_S, GRACE_S
from service.config.settings import GROUPS
from tests.deploy.files import DEPLOY

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


UNITS = sorted((DEPLOY / "systemd").iterdir())
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
