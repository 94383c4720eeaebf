"""Files that cannot be read: named in the statistics and metrics, and read once they are corrected."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from service.inputs.sources.listed.files import list_files
from tests.api.without_engine import Service
from tests.builders import stream_document


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "data")
    yield service
    service.close()


def metric(service: Service, name: str) -> list[str]:
    text = service.workspace.metrics("running", ingest=False).decode()
    return [line for line in text.splitlines() if line.startswith(name)]


def test_a_file_set_aside_is_told_until_it_is_corrected_and_retried(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "1.csv"
    file.write_text("ts,k\n2024-05-01T08:00:00Z,1\n2024-05-01T08:00:01Z,one\n")
    source = {"type": "files", "format": "csv", "path": str(tmp_path / "in"), "settle": 0}
    service.made("POST", "/streams", stream_document("A", **source))
    list_files(service.store, service.workspace.streams.get("A"))
    reason = "row 2 (line 3), column \"k\": 'one' is not an integer of 64 bits"

    (stream,) = service.made("GET", "/statistics")["streams"]
    assert (stream["files_set_aside"], stream["set_aside"]) == (1, [[str(file), reason]])
    assert metric(service, "sluice_files_set_aside") == ['sluice_files_set_aside{stream="A"} 1.0']

    file.write_text("ts,k\n2024-05-01T08:00:00Z,1\n2024-05-01T08:00:01Z,2\n")
    asked = service.made("POST", "/streams/A/files:retry")
    assert asked == {"files": [{"path": str(file), "reason": reason}]}
    assert list_files(service.store, service.workspace.streams.get("A")) == 1

    (stream,) = service.made("GET", "/statistics")["streams"]
    assert (stream["files_set_aside"], stream["set_aside"]) == (0, [])
    assert metric(service, "sluice_files_set_aside") == ['sluice_files_set_aside{stream="A"} 0.0']
    assert service.made("POST", "/streams/A/files:retry") == {"files": []}
    assert service.send("POST", "/streams/none/files:retry").status_code == 404


def test_a_directory_of_directories_is_told_when_its_stream_is_registered_and_in_its_statistics(
    service: Service, tmp_path: Path
) -> None:
    (tmp_path / "in" / "day=1").mkdir(parents=True)
    source = {"type": "files", "format": "csv", "path": str(tmp_path / "in")}
    warnings = service.made("POST", "/streams", stream_document("A", **source))["warnings"]
    assert warnings == [
        f'stream "A" has no files: "{tmp_path}/in" holds none, but 1 directory; '
        f'write path: "{tmp_path}/in/**/*" to read the files in it'
    ]
    assert service.made("GET", "/statistics")["streams"][0]["warnings"] == warnings
    source["path"] += "/**/*"
    (tmp_path / "in" / "day=1" / "1.csv").write_text("ts,k\n2024-05-01T08:00:00Z,1\n")
    assert service.made("POST", "/streams", stream_document("B", **source))["warnings"] == []
    assert service.made("GET", "/statistics")["streams"][1]["warnings"] == []


def test_a_directory_that_cannot_be_listed_is_refused(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("service.workspace.streams.candidates", refused)
    (tmp_path / "in").mkdir()
    answer = service.send("POST", "/streams", stream_document("A", type="files", path=f"{tmp_path}/in/**/*"))
    assert answer.status_code == 422
    assert "cannot be listed: [Errno 13] Permission denied" in answer.text


def test_background_work_that_fails_is_told_by_the_probe_and_counted(service: Service) -> None:
    assert service.send("GET", "/health/ready").status_code == 200
    service.workspace.faults.failed("listing", KeyError("value"), of="A")
    answer = service.send("GET", "/health/ready")
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("background work fails: listing")
    assert "listing of A: KeyError: 'value'" in answer.text
    assert 'sluice_background_faults_total{part="listing"} 1.0' in metric(service, "sluice_background_faults")
    service.workspace.faults.works("listing", of="A")
    assert service.send("GET", "/health/ready").status_code == 200
