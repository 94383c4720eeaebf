"""The compose file follows the specification, and names what is there."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from service.config.settings import GROUPS, load_settings
from tests.deploy.files import DEPLOY, document

COMPOSE: dict[str, Any] = document(DEPLOY / "compose.yaml")
API, ENGINE = (COMPOSE["services"][name] for name in ("api", "engine"))


def test_it_follows_the_specification() -> None:
    parsed = PyCompose.from_yaml(yaml.safe_dump(COMPOSE, sort_keys=False))  # it knows no "<<"
    parsed.validate()
    assert parsed.service_names() == ["api", "engine", "postgres", "prometheus", "grafana"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("read_onli", True), ("cpus", "many"), ("stop_grace_period", "soon"), ("networks", ["x"])],
)
def test_what_does_not_follow_it_is_found(key: str, value: object) -> None:
    changed = copy.deepcopy(COMPOSE)
    changed["services"]["engine"][key] = value
    with pytest.raises(ValueError, match=key.replace("networks", "network")):
        PyCompose.from_yaml(yaml.safe_dump(changed)).validate()


def test_volumes_and_secrets_are_there() -> None:
    volumes = [v for service in COMPOSE["services"].values() for v in service.get("volumes", ())]
    named = {source for source in (v.split(":")[0] for v in volumes) if not source.startswith(".")}
    assert named == set(COMPOSE["volumes"])
    for source in {v.split(":")[0] for v in volumes} - named:
        assert (DEPLOY / source).is_dir()
    used = {secret for service in COMPOSE["services"].values() for secret in service.get("secrets", ())}
    assert used == set(COMPOSE["secrets"])
    (scraped,) = document(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    assert scraped["authorization"]["credentials_file"] == "/run/secrets/metrics_key"
    assert scraped["static_configs"] == [{"targets": ["api:8080"]}]
    assert scraped["dns_sd_configs"] == [{"names": ["engine"], "type": "A", "port": 8081}]
    build = ENGINE["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"


def test_variables_are_those_of_the_example() -> None:
    asked = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text(encoding="utf-8")))
    assert asked == set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(encoding="utf-8"), re.M))


def test_settings_are_settings_and_cores_are_what_the_container_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = dict(ENGINE["environment"])
    assert API["environment"] == given
    database = COMPOSE["services"]["postgres"]["environment"]
    assert given.pop("PGPASSWORD") == database["POSTGRES_PASSWORD"]
    for name, value in given.items():
        assert name.removeprefix("SLUICE_").lower() in GROUPS
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.spark.cores == ENGINE["cpus"]
    assert settings.bucket_count == 4 * settings.spark.cores
    url = f"postgresql+psycopg://{database['POSTGRES_USER']}@postgres:5432/{database['POSTGRES_DB']}"
    assert settings.storage.effective_catalog_url == url


def test_the_root_is_read_only_and_nothing_is_published_to_other_machines() -> None:
    for part in (API, ENGINE):
        assert part["read_only"]
        assert part["cap_drop"] == ["ALL"]
        assert [mount.split(":")[0] for mount in part["tmpfs"]] == ["/tmp"]
        assert "exec" in part["tmpfs"][0].split(":")[1].split(",")
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_api_and_engine_are_apart_and_an_engine_stands_by() -> None:
    assert (API["command"], ENGINE["command"]) == (["api"], ["engine"])
    assert ENGINE["deploy"]["replicas"] == 2
    port = load_settings().server.engine_port
    assert f"127.0.0.1:{port}/health/live" in ENGINE["healthcheck"]["test"][-1]
    assert API["volumes"] == ENGINE["volumes"]
