"""An engine that cannot load PySpark says so and gives everything back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from catalog.store.store import Store
from service.config.data_dir import open_data_dir
from service.config.settings import load_settings
from service.engine.engine import Engine
from tests.empty_catalog import prepared


def test_an_engine_without_pyspark_fails_and_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] in ("pyspark", "py4j")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.startswith("service.")]:
        # What has been loaded with PySpark would be found without it.
        if name.partition(".")[2] in ("chain_processor", "commit", "job", "query_end"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "py4j", None)
    directory = open_data_dir(tmp_path)
    with Store.open(prepared(directory.catalog_url)) as store:
        engine = Engine(load_settings(data_dir=tmp_path), directory, store, bounded=True)
        engine.acquire()
        with pytest.raises(ModuleNotFoundError, match="py"):
            engine.run()
        engine.close()
        again = Engine(load_settings(data_dir=tmp_path), directory, store, bounded=True)
        again.acquire()
        again.close()
