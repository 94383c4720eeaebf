"""State-Slice, VLDB 2006, §7, run on this engine: ``python -m tests.bench.paper``."""
