import re
from pathlib import Path

import pytest

from service.config.data_dir import open_data_dir
from service.config.settings import (
    GROUPS,
    AdaptiveSettings,
    BatchSettings,
    ResultSettings,
    Settings,
    SparkSettings,
    load_settings,
)
from service.errors import DataDirUnusable, InvalidSetting


def test_the_environment_sets_what_the_command_line_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_PORT", "9000")
    monkeypatch.setenv("SLUICE_CORES", "3")

    settings = load_settings(port=None, cores=5)

    assert (settings.server.port, settings.spark.cores) == (9000, 5)


def test_buckets_follow_the_cores_unless_they_are_set() -> None:
    assert load_settings(cores=3).bucket_count == 3
    assert load_settings(cores=3, buckets=7).bucket_count == 7


def test_the_heap_is_written_as_spark_writes_it() -> None:
    assert SparkSettings().driver_memory_bytes == 1 << 30
    assert SparkSettings(driver_memory="1500m").driver_memory_bytes == 1500 << 20


def test_batches_begin_at_a_million_rows_or_at_their_limit() -> None:
    assert BatchSettings().first_rows == 1_000_000
    assert BatchSettings(max_rows=7).first_rows == 7
    assert BatchSettings(max_rows=3_000_000, target_s=0).first_rows == 3_000_000


def test_the_master_follows_the_cores_unless_it_is_set() -> None:
    assert SparkSettings(cores=3).master == "local[3]"
    assert SparkSettings(master="local-cluster[2,1,1024]").master == "local-cluster[2,1,1024]"


def test_a_value_that_cannot_be_meant_is_named_with_how_to_set_it() -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_settings(cores=0)

    assert str(caught.value) == (
        'setting "cores" cannot be 0\n'
        "  detail: Expected at least 1.\n"
        "  hint: Correct the option, or set SLUICE_CORES."
    )


@pytest.mark.parametrize(
    ("name", "value", "detail"),
    [
        ("tls_key", "key.pem", "Also set tls_cert, the file of the service's certificate."),
        ("tls_client_ca", "ca.pem", "Also set tls_cert, the file of the service's certificate."),
        ("oidc_issuer", "http://issuer.example", "Give an issuer with https."),
        ("oidc_issuer", "https://[issuer", "Invalid IPv6 URL."),
    ],
)
def test_a_setting_of_access_that_does_not_fit_is_named(name: str, value: str, detail: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_settings(**{name: value})
    assert caught.value.primary == f"setting \"{name}\" cannot be '{value}'"
    assert caught.value.detail == detail


def test_a_setting_with_passwords_is_not_repeated_where_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_SPARK_CONF", '{"spark.ssl.keyPassword": "open-sesame"')

    with pytest.raises(InvalidSetting) as caught:
        load_settings()

    assert "open-sesame" not in str(caught.value)


def test_a_variable_that_is_not_json_where_it_must_be_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_SPARK_CONF", "a=b")

    with pytest.raises(InvalidSetting) as caught:
        load_settings()

    assert str(caught.value) == (
        'setting "spark_conf" cannot be what was given\n'
        "  detail: Write a JSON object.\n"
        "  hint: Correct the variable SLUICE_SPARK_CONF."
    )


def test_a_group_is_made_by_the_names_of_its_fields_and_read_by_flat_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLUICE_MAX_ROWS_PER_BATCH", "7")
    monkeypatch.setenv("SLUICE_ADAPTIVE", "false")
    monkeypatch.setenv("SLUICE_ADAPTIVE_INTERVAL_S", "5")
    monkeypatch.setenv("SLUICE_MAX_ROWS", "9")  # a field's name is not a variable's

    assert load_settings(cores=2) == Settings(
        spark=SparkSettings(cores=2),
        batches=BatchSettings(max_rows=7),
        adaptive=AdaptiveSettings(enabled=False, interval_s=5),
    )
    assert Settings().batches.max_rows == 4_000_000


def test_a_value_for_another_setting_is_named_by_its_flat_name() -> None:
    with pytest.raises(InvalidSetting, match='setting "max_rows_per_batch" cannot be 0'):
        load_settings(max_rows_per_batch=0)


def test_an_option_that_is_no_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="max_rows"):
        load_settings(max_rows=1)


def test_the_settings_in_the_documentation_are_all_there_are() -> None:
    text = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    _, table = text.split("| setting | default | |", 1)
    rows = [row for row in table.split("\n\n", 1)[0].splitlines() if row.startswith("| `")]

    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(documented) == sorted(GROUPS)


def test_strategies_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_STRATEGY", "cpu-opt")
    monkeypatch.setenv("SLUICE_FAMILY_STRATEGIES", '{"A.k = B.k": "unshared"}')

    settings = load_settings()

    planning = settings.planning
    assert (planning.strategy, planning.family_strategies) == ("cpu-opt", {"A.k = B.k": "unshared"})
    with pytest.raises(InvalidSetting, match="setting \"strategy\" cannot be 'best'"):
        load_settings(strategy="best")


def test_results_are_kept_for_three_days_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ResultSettings().retention_us == 3 * 86_400_000_000
    monkeypatch.setenv("SLUICE_RESULT_RETENTION", "90 min")
    assert load_settings().results.retention_us == 5_400_000_000
    assert load_settings(result_retention="Forever").results.retention_us is None
    assert load_settings(result_retention="0").results.retention_us == 0


def test_results_are_kept_for_sinks_for_a_week_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().sinks.retention_us == 7 * 86_400_000_000
    monkeypatch.setenv("SLUICE_SINK_RETENTION", "forever")
    assert load_settings().sinks.retention_us is None
    with pytest.raises(InvalidSetting, match="setting \"sink_retention\" cannot be 'a week'"):
        load_settings(sink_retention="a week")


def test_files_are_kept_for_sinks_up_to_a_size_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().sinks.retention_bytes == 20 << 30
    monkeypatch.setenv("SLUICE_SINK_RETENTION_MB", "0")
    assert load_settings().sinks.retention_bytes is None
    with pytest.raises(InvalidSetting, match='setting "sink_retention_mb" cannot be -1'):
        load_settings(sink_retention_mb=-1)


def test_a_retention_that_is_no_length_of_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_RESULT_RETENTION", "a week")

    with pytest.raises(InvalidSetting) as caught:
        load_settings()

    assert str(caught.value) == (
        "setting \"result_retention\" cannot be 'a week'\n"
        '  detail: Write a length of time such as "7d" or "24h", or "forever".\n'
        "  hint: Correct the variable SLUICE_RESULT_RETENTION."
    )


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().server.port = 1  # type: ignore[misc]  # the test is that it fails


def test_a_data_directory_is_made_with_its_parts(tmp_path: Path) -> None:
    directory = open_data_dir(tmp_path / "a" / "b")

    assert directory.results.is_dir()
    assert directory.late.is_dir()
    assert directory.catalog_url == f"sqlite:///{tmp_path}/a/b/catalog.db"
    assert list(directory.checkpoint.iterdir()) == [directory.segments]  # the rest Spark makes


def test_results_can_lie_elsewhere(tmp_path: Path) -> None:
    directory = open_data_dir(tmp_path / "_sluice", results_dir=tmp_path / "results")

    assert directory.results == tmp_path / "results"
    assert not (tmp_path / "_sluice" / "results").exists()


def test_a_data_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataDirUnusable, match="file/data"):
        open_data_dir(tmp_path / "file" / "data")
