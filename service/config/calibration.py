"""Storage of a machine's calibrated cost constants, as a setting in its catalog."""

from __future__ import annotations

from dataclasses import asdict, fields

from catalog.errors import CorruptDocument
from catalog.store.store import Store
from catalog.values.calibration import Calibration
from planner.costs.calibration.shipped import SHIPPED
from service.config.data_dir import DataDir
from service.config.settings import StorageSettings

CALIBRATION_SETTING = "calibration"


def store_calibration(store: Store, calibration: Calibration) -> None:
    """Store the cost constants that ``sluice calibrate`` has fitted."""
    store.settings.set(CALIBRATION_SETTING, asdict(calibration))


def calibration_of(store: Store) -> Calibration:
    """Return the cost constants of this machine or, before any calibration, the shipped constants.

    Constants fitted by a version of Sluice that counted other kinds of work are ignored.

    Args:
        store: The catalog.

    Raises:
        CorruptDocument: The stored setting is not a calibration.
    """
    stored = store.settings.get(CALIBRATION_SETTING)
    if stored is None:
        return SHIPPED
    if not isinstance(stored, dict):
        raise CorruptDocument("the stored calibration does not decode", hint="Run sluice calibrate again.")
    names = {f.name for f in fields(Calibration)}
    if stored.keys() != names:
        return SHIPPED
    numbers = {name: value for name, value in stored.items() if isinstance(value, (int, float))}
    if numbers.keys() != names:
        raise CorruptDocument("the stored calibration does not decode", hint="Run sluice calibrate again.")
    at_us = int(numbers.pop("fitted_at_us"))
    return Calibration(**{name: float(value) for name, value in numbers.items()}, fitted_at_us=at_us)


def data_dir_calibration(storage: StorageSettings) -> Calibration:
    """Return the cost constants stored in the data directory, or the shipped constants if it has none.

    The directory is not created if it is missing.

    Args:
        storage: Settings that locate the data directory and its catalog.

    Raises:
        CatalogDown: The catalog cannot be opened.
        CatalogVersionMismatch: The catalog belongs to another version of Sluice.
    """
    if storage.catalog_url is None and not DataDir(storage.data_dir).catalog_db.exists():
        return SHIPPED
    store = Store.open(storage.effective_catalog_url, migrate=False)
    try:
        return calibration_of(store)
    finally:
        store.close()
