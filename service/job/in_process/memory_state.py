"""In-memory state of one bucket, with the methods of Spark's handle that ``chain_processor`` uses.

With this state, the code of the job's workers can run without a JVM, and its CPU time can be measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

State = tuple[Any, ...]


@dataclass(slots=True)
class MemoryValue:
    """A value state in memory."""

    value: State | None = None

    def get(self) -> State | None:
        """Return the value, or None before the first update."""
        return self.value

    def update(self, value: State) -> None:
        """Replace the value."""
        self.value = value


@dataclass(slots=True)
class MemoryHandle:
    """Stand-in for Spark's ``StatefulProcessorHandle``, with the same method names.

    Attributes:
        value_states: Value states by name.
    """

    value_states: dict[str, MemoryValue] = field(default_factory=dict)

    def getValueState(self, name: str, schema: str) -> MemoryValue:  # noqa: N802
        """Return a value state, made on first use."""
        return self.value_states.setdefault(name, MemoryValue())
