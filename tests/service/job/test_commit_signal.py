import threading
import time
from pathlib import Path

from catalog.store.store import Store
from catalog.values.control import Heartbeat
from service.job.commit_signal import CommitSignal
from tests.empty_catalog import prepared


def news_of(directory: Path) -> tuple[Store, CommitSignal]:
    url = f"sqlite:///{directory / 'catalog.db'}"
    news = CommitSignal.of((url, f"sqlite:///{directory / 'events.db'}"), str(directory / "engine.lock"))
    assert news is not None
    return Store.open(prepared(url)), news


def test_a_catalog_on_a_server_tells_no_news() -> None:
    assert CommitSignal.of(("postgresql://host/catalog", "sqlite:///events.db"), "engine.lock") is None


def test_a_commit_is_news(tmp_path: Path) -> None:
    store, news = news_of(tmp_path)
    with store:
        before = news.signs()
        store.control_log.append(heartbeat=Heartbeat(1, 2))

        assert news.wait(before, until_s=time.monotonic())


def test_an_engine_that_stops_is_news(tmp_path: Path) -> None:
    store, news = news_of(tmp_path)
    with store:
        before = news.signs()
        (tmp_path / "engine.lock").touch()

        assert news.wait(before, until_s=time.monotonic())


def test_without_one_the_wait_ends(tmp_path: Path) -> None:
    store, news = news_of(tmp_path)
    with store:
        store.control_log.append(heartbeat=Heartbeat(1, 2))

        assert not news.wait(news.signs(), until_s=time.monotonic() + 0.05)


def test_whoever_waits_is_told_soon(tmp_path: Path) -> None:
    store, news = news_of(tmp_path)
    with store:
        signs = news.signs()
        writer = threading.Timer(0.1, lambda: store.control_log.append(heartbeat=Heartbeat(1, 2)))
        writer.start()

        assert news.wait(signs, until_s=time.monotonic() + 60)

        writer.join()
