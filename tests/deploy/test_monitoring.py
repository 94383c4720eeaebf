"""Alerts and dashboard name what the service exports, and every alert has its section in the runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.files import DEPLOY, anchors, document, tool
from tests.deploy.promql import Labels, exported_metrics, labels_of, shown_labels

RULE_FILES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
ALERTS = [rule for file in RULE_FILES for group in document(file)["groups"] for rule in group["rules"]]
CASES = Path(__file__).with_name("alerts.yml")
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "sluice.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Labels]:
    return exported_metrics(tmp_path_factory.mktemp("exported"))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_names_what_is_exported(alert: dict[str, Any], exported: dict[str, Labels]) -> None:
    assert shown_labels(alert["annotations"]["summary"]) <= labels_of(alert["expr"], exported)
    assert alert["labels"]["severity"] in ("critical", "warning")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_has_a_section_in_the_runbook(alert: dict[str, Any]) -> None:
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert anchor == alert["alert"].lower()
    assert anchor in anchors((DEPLOY.parent / page).read_text(encoding="utf-8"))


def test_alerts_have_names_of_their_own_and_the_runbook_has_no_others() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(names) == len(set(names))
    sections = re.findall(
        r"^### (Sluice\w+)$", (DEPLOY / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(sections) == sorted(names)


def test_each_alert_has_a_case_on_which_it_fires() -> None:
    cases = [case for test in document(CASES)["tests"] for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert fires == {alert["alert"] for alert in ALERTS}


def lost(written: Any, read: Any, path: str = "") -> list[str]:
    """Return the paths of a document that are missing after a schema has read it."""
    if isinstance(written, dict) and isinstance(read, dict):
        return [
            place
            for name, value in written.items()
            for place in lost(value, read.get(name, KeyError), f"{path}/{name}")
        ]
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        return [
            place
            for n, pair in enumerate(zip(written, read, strict=True))
            for place in lost(*pair, f"{path}/{n}")
        ]
    return [] if written == read else [path]


def test_the_dashboard_is_of_grafana_s_schema() -> None:
    """Reading the dashboard with Grafana's own types drops the fields that they do not have."""
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))
    # A source of annotations may have extra fields; this one belongs to Prometheus.
    assert lost(DASHBOARD, read) == ["/annotations/list/0/titleFormat"]
    misspelt = DASHBOARD | {"panels": [PANELS[0] | {"titel": "x"}]}
    assert "/panels/0/titel" in lost(
        misspelt, json.loads(JSONEncoder().encode(Dashboard.from_json(misspelt)))
    )


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("promtool"), *words], capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    found = promtool("test", "rules", CASES)
    assert found.returncode == 0, found.stdout + found.stderr
    # With another threshold a case fails.
    rules = tmp_path / "deploy" / "prometheus" / "rules"
    changed = tmp_path / "tests" / "deploy" / CASES.name
    changed.parent.mkdir(parents=True)
    shutil.copy(CASES, changed)
    shutil.copytree(DEPLOY / "prometheus" / "rules", rules)
    (rules / "streams.yml").write_text((rules / "streams.yml").read_text().replace("> 900", "> 9000"))
    failed = promtool("test", "rules", changed)
    assert failed.returncode == 1
    assert "SluiceWatermarkLag" in failed.stderr + failed.stdout


@pytest.mark.slow
def test_prometheus_takes_rules_and_configuration(tmp_path: Path) -> None:
    rules = promtool("check", "rules", *RULE_FILES)
    assert rules.returncode == 0, rules.stdout + rules.stderr
    assert rules.stdout.count("SUCCESS") == len(RULE_FILES)
    key = tmp_path / "metrics.key"
    key.touch()
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    config = tmp_path / "prometheus.yml"
    config.write_text(
        text.replace("/run/secrets/metrics_key", str(key)).replace(
            "/etc/prometheus/rules", str(RULE_FILES[0].parent)
        )
    )
    found = promtool("check", "config", config)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(RULE_FILES)} rule files found" in found.stdout


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_names_what_is_exported(panel: dict[str, Any], exported: dict[str, Labels]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert shown_labels(target["legendFormat"]) <= labels_of(target["expr"], exported)


def test_variables_and_annotations_of_the_dashboard_name_what_is_exported(
    exported: dict[str, Labels],
) -> None:
    (instance,) = (v for v in DASHBOARD["templating"]["list"] if v["type"] == "query")
    selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", instance["query"]["query"]).groups()
    assert label in labels_of(selector, exported)
    for annotation in DASHBOARD["annotations"]["list"]:
        labels_of(annotation["expr"], exported)


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sluice_nothing_total > 0", "sluice_nothing_total is not exported"),
        ('sluice_input_rows_total{query="q"}', "no labels ['query']"),
        ("sum by (query) (sluice_input_rows_total)", "no labels ['query']"),
        ("sluice_late_rows_total / sluice_batches_total", "never match"),
        ("sluice_late_rows_total / on (query) sluice_query_results_total", "no labels ['query']"),
        ("rate(sluice_late_rows_total[5m]", "unclosed"),
    ],
)
def test_what_is_not_exported_is_found(expression: str, problem: str, exported: dict[str, Labels]) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        labels_of(expression, exported)


def test_prometheus_reads_the_rules_where_compose_puts_them() -> None:
    config = document(DEPLOY / "prometheus" / "prometheus.yml")
    assert config["rule_files"] == ["/etc/prometheus/rules/*.yml"]
    (scraped,) = config["scrape_configs"]
    assert scraped["job_name"] == "sluice"
    assert RULE_FILES


def test_grafana_gets_its_data_source_and_the_directory_of_dashboards() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = document(provisioning / "datasources" / "prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = document(provisioning / "dashboards" / "sluice.yml")["providers"]
    mounts = document(DEPLOY / "compose.yaml")["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts
