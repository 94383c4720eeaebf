"""Catalogs of many worlds in one process, cheaply: statements are compiled once.

SQLAlchemy keeps compiled statements with an engine and its dialect; here all engines share those of one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy

from catalog.store import database
from tests import empty_catalog

_create_engine = sqlalchemy.create_engine


@cache
def _first() -> sqlalchemy.Engine:
    engine = _create_engine("sqlite://")
    engine.connect().close()
    return engine


def _created(url: sqlalchemy.URL, **options: Any) -> sqlalchemy.Engine:
    engine = _create_engine(url, **options)
    engine.dialect = _first().dialect
    engine._compiled_cache = _first()._compiled_cache
    return engine


@contextmanager
def fast_catalogs() -> Iterator[None]:
    """Have all engines of the block share what they have compiled."""
    database.create_engine = _created  # of its arguments these are used
    try:
        yield
    finally:
        database.create_engine = _create_engine


def write_empty_catalog(directory: Path) -> None:
    """Make a directory anew, with a catalog that has its tables and nothing in them."""
    shutil.rmtree(directory, ignore_errors=True)
    empty_catalog.write_empty_catalog(directory / "catalog.db")
