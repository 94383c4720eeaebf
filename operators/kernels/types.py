"""Argument types of compiled functions, given in advance: they are compiled on import.

Left to itself numba compiles a function for every mix of writable and read-only arrays that it meets, in each
worker, while the first batch waits. What is declared read-only takes both.
"""

from __future__ import annotations

from numba import types

BOOL = types.boolean
INT64 = types.int64
FLOAT64 = types.float64
#: Columns that a function reads.
INT64S_READ = types.Array(types.int64, 1, "C", readonly=True)
FLOAT64S_READ = types.Array(types.float64, 1, "C", readonly=True)
UINT64S_READ = types.Array(types.uint64, 1, "C", readonly=True)
BOOLS_READ = types.Array(types.boolean, 1, "C", readonly=True)
#: Columns that it writes or returns.
INT64S = types.Array(types.int64, 1, "C")
UINT64S = types.Array(types.uint64, 1, "C")
THREE_INT64S = types.UniTuple(INT64S, 3)  # type: ignore[no-untyped-call]  # numba says no types
TWO_INT64S = types.UniTuple(INT64S, 2)  # type: ignore[no-untyped-call]  # numba says no types
#: Sets of queries, one per row.
SETS_READ = types.Array(types.uint64, 2, "C", readonly=True)
