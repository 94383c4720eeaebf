"""Strategies: how the chains of a family are chosen."""
