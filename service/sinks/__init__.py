"""Sinks: where joined pairs go."""
