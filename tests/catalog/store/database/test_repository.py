"""Reads of thousands of rows: the same rows on either database, in one row of SQLite's driver."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, bindparam, delete, insert, select

from catalog.store.database.database import Database
from catalog.store.database.repository import all_rows
from tests.examples import examples
from tests.statements import statements

T = Table("kept", MetaData(), Column("id", BigInteger, primary_key=True), Column("text", Text))
ALL = select(T.c.id, T.c.text)

#: Texts that PostgreSQL keeps, too; neither database keeps surrogates.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('rows') / 'rows.db'}")
    with database.write() as connection:
        T.create(connection)
    return database


@settings(max_examples=examples(160))
@given(rows=st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.none() | texts))
def test_rows_read_at_once_are_those_that_were_written(
    database: Database, rows: dict[int, str | None]
) -> None:
    with database.write() as connection:
        connection.execute(delete(T))
        if rows:
            connection.execute(insert(T), [{"id": key, "text": text} for key, text in rows.items()])
        assert dict(all_rows(connection, ALL)) == rows


def test_rows_have_names_and_may_be_chosen_by_parameters(either_url: str) -> None:
    database = Database(either_url)
    some = ALL.where(T.c.id.in_(bindparam("ids", expanding=True))).order_by(T.c.id)
    with database.write() as connection:
        T.create(connection)
        connection.execute(insert(T), [{"id": key, "text": f'"{key}"\n'} for key in range(5)])
        found = all_rows(connection, some, {"ids": [3, 1, 7]})
        assert sorted((row.id, row.text) for row in found) == [(1, '"1"\n'), (3, '"3"\n')]
    database.close()


def test_sqlite_gives_all_rows_as_one(database: Database) -> None:
    # Its driver releases the interpreter's lock for each row that it fetches, so each row may take the 5 ms
    # after which another thread gives the lock back.
    with database.write() as connection, statements() as found:
        connection.execute(delete(T))
        connection.execute(insert(T), [{"id": key} for key in range(100)])
        assert len(all_rows(connection, ALL)) == 100
        assert len(connection.exec_driver_sql(found[-1]).all()) == 1
