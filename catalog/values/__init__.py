"""Immutable values that all packages share."""
