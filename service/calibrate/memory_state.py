"""Spark's state of one bucket, kept in memory: what ``service.chain_processor`` needs of a handle.

So the very code that runs in the job's workers can be run, and its CPU time taken, without a JVM.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

State = tuple[Any, ...]


@dataclass(slots=True)
class MemoryValue:
    """A value state."""

    value: State | None = None

    def get(self) -> State | None:
        """Return the value, None before the first."""
        return self.value

    def update(self, value: State) -> None:
        """Replace the value."""
        self.value = value


@dataclass(slots=True)
class MemoryMap:
    """A map state whose values are one byte string each.

    Attributes:
        values: By key.
        writes: Values ever written.
        bytes_written: Bytes of them.
    """

    values: dict[State, State] = field(default_factory=dict)
    writes: int = 0
    bytes_written: int = 0

    def getValue(self, key: State) -> State | None:  # noqa: N802  Spark's name
        """Return the value of a key."""
        return self.values.get(key)

    def updateValue(self, key: State, value: State) -> None:  # noqa: N802
        """Write the value of a key."""
        self.values[key] = value
        self.writes += 1
        self.bytes_written += len(value[0])

    def removeKey(self, key: State) -> None:  # noqa: N802
        """Remove a key that is there."""
        del self.values[key]


@dataclass(slots=True)
class MemoryHandle:
    """Stands for Spark's ``StatefulProcessorHandle``, by whose names it goes.

    Attributes:
        value_states: By name.
        map_states: By name.
    """

    value_states: dict[str, MemoryValue] = field(default_factory=dict)
    map_states: dict[str, MemoryMap] = field(default_factory=dict)

    def getValueState(self, name: str, schema: str) -> MemoryValue:  # noqa: N802
        """Return a value state, made on first use."""
        return self.value_states.setdefault(name, MemoryValue())

    def getMapState(self, name: str, key_schema: str, value_schema: str) -> MemoryMap:  # noqa: N802
        """Return a map state, made on first use."""
        return self.map_states.setdefault(name, MemoryMap())
