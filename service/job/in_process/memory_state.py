"""Spark's state of one bucket, kept in memory: what ``service.job.chain_processor`` needs of a handle.

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
class MemoryHandle:
    """Stands for Spark's ``StatefulProcessorHandle``, by whose names it goes.

    Attributes:
        value_states: By name.
    """

    value_states: dict[str, MemoryValue] = field(default_factory=dict)

    def getValueState(self, name: str, schema: str) -> MemoryValue:  # noqa: N802
        """Return a value state, made on first use."""
        return self.value_states.setdefault(name, MemoryValue())
