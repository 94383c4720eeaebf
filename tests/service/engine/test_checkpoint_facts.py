"""What the first start of a checkpoint fixes, and settings that want something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.store.store import Store
from service.config.data_dir import open_data_dir
from service.config.settings import load_settings
from service.engine.checkpoint_facts import checkpoint_facts
from service.engine.engine import Engine
from service.errors import BucketsFixed
from tests.empty_catalog import prepared


def test_an_engine_with_another_number_of_buckets_takes_nothing(tmp_path: Path) -> None:
    directory = open_data_dir(tmp_path)
    right, wrong, silent = (
        load_settings(data_dir=tmp_path, **buckets) for buckets in ({"buckets": 4}, {"buckets": 8}, {})
    )
    with Store.open(prepared(directory.catalog_url)) as store:
        assert len(checkpoint_facts(store, right).keys) == 4
        with pytest.raises(BucketsFixed, match="4 buckets, not 8") as refused:
            Engine(wrong, directory, store).acquire()
        assert "Set SLUICE_BUCKETS (--buckets) to 4" in str(refused.value)
        # The lease was given back: one that is set right takes over at once.
        for settings in (right, silent):
            engine = Engine(settings, directory, store)
            engine.acquire()
            engine.close()
