"""The manifests follow the schemas that Kubernetes publishes, and their parts belong together."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from service.config.settings import GROUPS, Settings
from tests.deploy.files import DEPLOY, document, documents

KUBERNETES = DEPLOY / "kubernetes"
BASE = KUBERNETES / "base"
OVERLAY = KUBERNETES / "overlays" / "postgresql"
#: The oldest that knows all fields, and the newest that the schemas are there for.
VERSIONS = ("1.31", kubernetes_validate.latest_version())

FOLDERS = {folder: document(folder / "kustomization.yaml") for folder in (BASE, OVERLAY)}
MANIFESTS = sorted(
    [KUBERNETES / "shell.yaml"]
    + [folder / name for folder, found in FOLDERS.items() for name in found["resources"] if ".." not in name]
)
DEPLOYMENTS: dict[str, Any] = {part: document(BASE / f"{part}.yaml") for part in ("api", "engine")}
TEMPLATES: dict[str, Any] = {part: found["spec"]["template"] for part, found in DEPLOYMENTS.items()}
PODS = {part: found["spec"] for part, found in TEMPLATES.items()}
PODS["shell"] = document(KUBERNETES / "shell.yaml")["spec"]
#: Port of each part by its name.
PORTS = {"api": ("http", 8080), "engine": ("probes", 8081)}
each_part = pytest.mark.parametrize("part", DEPLOYMENTS)


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_follows_its_schema(path: Path, version: str) -> None:
    for manifest in documents(path):
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("replicas", "one"), ("selectr", "sluice"), ("strategy", {"typ": "RollingUpdate"})],
)
def test_what_does_not_follow_it_is_found(key: str, value: object) -> None:
    changed = copy.deepcopy(DEPLOYMENTS["engine"])
    changed["spec"][key] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(changed, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_file_is_used(folder: Path) -> None:
    found = FOLDERS[folder]
    patches = [patch["path"] for patch in found.get("patches", ())]
    used = {*found["resources"], *patches} - {"../../base"}
    assert {path.name for path in folder.glob("*.yaml")} == used | {"kustomization.yaml"}


def test_engines_stand_by_and_pods_share_a_volume_of_one_node() -> None:
    assert DEPLOYMENTS["engine"]["spec"]["replicas"] == 2
    assert "replicas" not in DEPLOYMENTS["api"]["spec"], "the autoscaler's"
    claim = document(BASE / "volume.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    for pod in PODS.values():
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    for part in DEPLOYMENTS:
        (term,) = PODS[part]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"].items() <= TEMPLATES[part]["metadata"]["labels"].items()


def test_the_autoscaler_is_of_the_api() -> None:
    scaler, api = document(BASE / "hpa.yaml")["spec"], DEPLOYMENTS["api"]
    assert scaler["scaleTargetRef"] == {
        "apiVersion": api["apiVersion"],
        "kind": api["kind"],
        "name": api["metadata"]["name"],
    }
    assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]


@each_part
def test_selectors_are_the_labels_of_the_pod(part: str) -> None:
    labels = TEMPLATES[part]["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == part
    assert DEPLOYMENTS[part]["spec"]["selector"]["matchLabels"] == labels
    budgets = {
        found["metadata"]["name"]: found["spec"] for found in documents(BASE / "poddisruptionbudget.yaml")
    }
    budget = budgets[DEPLOYMENTS[part]["metadata"]["name"]]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["maxUnavailable"] == 1
    selected = [found["spec"] for found in documents(BASE / "service.yaml")]
    (of_part,) = (spec for spec in selected if spec["selector"] == labels)
    assert [port["port"] for port in of_part["ports"]] == [PORTS[part][1]]
    policy = document(BASE / "networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"]
    assert policy.items() <= labels.items()


@pytest.mark.parametrize("pod", PODS.values(), ids=list(PODS))
def test_a_pod_may_do_nothing_but_write_to_its_volumes(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    for container in containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/data", "/tmp"}
        assert set(container["resources"]) == {"requests", "limits"}


@each_part
def test_probes_ask_the_health_of_the_port(part: str) -> None:
    (container,) = PODS[part]["containers"]
    (port,) = container["ports"]
    name, number = PORTS[part]
    assert container["args"] == [part]
    assert (port["name"], port["containerPort"]) == (name, number)
    server = Settings().server
    assert number == {"api": server.port, "engine": server.engine_port}[part]
    probes = {
        name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert probes == {
        "startupProbe": {"path": "/health/live", "port": port["name"]},
        "livenessProbe": {"path": "/health/live", "port": port["name"]},
        "readinessProbe": {"path": "/health/ready", "port": port["name"]},
    }
    (policy,) = document(BASE / "networkpolicy.yaml")["spec"]["ingress"]
    assert {"protocol": "TCP", "port": port["name"]} in policy["ports"]
    assert PODS[part]["terminationGracePeriodSeconds"] > 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_settings_are_settings(folder: Path) -> None:
    maps = FOLDERS[folder]["configMapGenerator"]
    given = [literal.partition("=")[0] for made in maps for literal in made["literals"]]
    if folder == OVERLAY:
        (secret,) = FOLDERS[folder]["secretGenerator"]
        (file,) = secret["envs"]
        given += [
            line.partition("=")[0]
            for line in (folder / f"{file}.example").read_text(encoding="utf-8").splitlines()
        ]
        ignored = (DEPLOY.parent / ".gitignore").read_text(encoding="utf-8").splitlines()
        assert f"/{(folder / file).relative_to(DEPLOY.parent)}" in ignored
    for name in set(given) - {"PGPASSWORD"}:
        assert name.removeprefix("SLUICE_").lower() in GROUPS
    made_here = {made["name"] for made in (*maps, *FOLDERS[folder].get("secretGenerator", ()))}
    for container in (c for part in DEPLOYMENTS for c in containers(PODS[part])):
        sources = {s["name"] for source in container["envFrom"] for s in source.values()}
        assert made_here <= sources


def test_cores_are_the_limit_of_the_container() -> None:
    (container,) = PODS["engine"]["containers"]
    (cores,) = container["env"]
    assert cores["name"] == "SLUICE_CORES"
    assert cores["valueFrom"]["resourceFieldRef"] == {"containerName": "engine", "resource": "limits.cpu"}


def test_patches_of_the_overlay_change_what_is_there() -> None:
    size, engine = document(OVERLAY / "size.yaml"), DEPLOYMENTS["engine"]
    assert (size["kind"], size["metadata"]) == (engine["kind"], engine["metadata"])
    (patched,) = size["spec"]["template"]["spec"]["containers"]
    (container,) = PODS["engine"]["containers"]
    assert patched["name"] == container["name"]
    (egress,) = document(OVERLAY / "egress.yaml")
    assert (egress["op"], egress["path"]) == ("add", "/spec/egress/-")
    policy = document(BASE / "networkpolicy.yaml")
    policy["spec"]["egress"].append(egress["value"])
    kubernetes_validate.validate(policy, VERSIONS[-1], strict=True)
