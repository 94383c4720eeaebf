"""Settings in the catalog: small JSON values that must survive a restart, such as the bucket count."""

from __future__ import annotations

import json
from typing import cast

from pydantic import JsonValue
from sqlalchemy import bindparam, delete, insert, select

from catalog.store.database import tables
from catalog.store.database.repository import Repository

_s = tables.settings.c
_BY_KEY = select(_s.value).where(_s.key == bindparam("key"))


class SettingRepository(Repository):
    """Settings by key."""

    def get(self, key: str) -> JsonValue:
        """Return the value of a setting.

        Args:
            key: Key of the setting.

        Returns:
            The JSON value, or None if the setting was never set.
        """
        with self._database.read() as connection:
            value = connection.execute(_BY_KEY, {"key": key}).scalar()
        return None if value is None else cast("JsonValue", json.loads(value))

    def set(self, key: str, value: JsonValue) -> None:
        """Set the value of a setting.

        Args:
            key: Key of the setting.
            value: Any JSON value.
        """
        with self._database.write() as connection:
            connection.execute(delete(tables.settings).where(_s.key == key))
            connection.execute(insert(tables.settings).values(key=key, value=json.dumps(value)))
