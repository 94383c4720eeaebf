"""Random input against what reads input: CQL texts, event bodies, payloads, and the whole API.

Each fuzzer gets some hundred inputs in `make test` and for ten minutes in `make test-slow`. What they find
becomes a test of its own where the culprit is tested.
"""
