"""Answers kept in a dict that must not grow forever: a plan version may stay for weeks."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: Answers kept of each sort.
MAX_KEPT = 1 << 12


def keep(answers: dict[K, V], question: K, answer: V) -> None:
    """Keep an answer; all others are forgotten when there are too many."""
    if len(answers) >= MAX_KEPT:
        answers.clear()
    answers[question] = answer
