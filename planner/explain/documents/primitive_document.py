"""Primitives as JSON values and as text, for previews, migration responses and the history.

The history keeps the primitives of every version forever, in a short form. This form lists only routes and
filters that were added or removed. It has one entry for neighbouring slices whose filters change alike, and
limits the number of entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.steps import stream_names
from catalog.values.plan import Plan
from catalog.values.primitive import (
    CloseJoin,
    Extend,
    Keep,
    Merge,
    OpenJoin,
    Primitive,
    SetFilter,
    SetRoutes,
    Split,
    Truncate,
)
from catalog.values.query import UNBOUNDED_US
from planner.families.families import SideName
from planner.families.texts.display import FamilyText, display_duration, family_text

#: Maximum number of entries per version, and of names per entry, in the history; all others are only counted.
MOST_STEPS = 24
MOST_NAMES = 8

KINDS: Mapping[type[Primitive], str] = {
    Split: "split",
    Merge: "merge",
    Extend: "extend",
    Truncate: "truncate",
    SetFilter: "set-filter",
    SetRoutes: "set-routes",
    OpenJoin: "open-join",
    CloseJoin: "close-join",
}


def primitive_documents(
    previous: Plan | None, plan: Plan, steps: Iterable[Primitive]
) -> list[dict[str, Any]]:
    """Return primitives as JSON objects with all their attributes.

    Args:
        previous: Version before the primitives, or None before the first version.
        plan: Version after the primitives.
        steps: The primitives.

    Returns:
        ``type``, ``family``, ``family_id``, ``join``, further attributes of the type, and ``text``.
    """
    names = _Names.of(previous, plan)
    return [_head(step, names) | _facts(step, names) for step in steps]


def short_documents(
    previous: Plan | None, plan: Plan, steps: Sequence[Primitive]
) -> tuple[list[dict[str, Any]], int]:
    """Return primitives in the short form of the history, and the number of primitives left out.

    Args:
        previous: Version before the primitives, or None before the first version.
        plan: Version after the primitives.
        steps: The primitives.
    """
    names = _Names.of(previous, plan)
    runs: list[list[Primitive]] = []
    for step in steps:
        if runs and _alike(runs[-1][-1], step):
            runs[-1].append(step)
        else:
            runs.append([step])
    shown = [_head(run[0], names) | _short_facts(run, names) for run in runs[:MOST_STEPS]]
    return shown, sum(len(run) for run in runs[MOST_STEPS:])


@dataclass(frozen=True, slots=True)
class _Names:
    """Texts of families by family id, and names of queries by query id, in two plan versions."""

    families: Mapping[str, FamilyText]
    queries: Mapping[int, str]

    @classmethod
    def of(cls, previous: Plan | None, plan: Plan) -> _Names:
        families: dict[str, FamilyText] = {}
        queries: dict[int, str] = {}
        # A removed filter is only in the previous version, and an added filter only in the next version.
        for version in (previous, plan):
            for family_id, text in {} if version is None else _texts(version).items():
                families[family_id] = _with_filters(text, families.get(family_id))
            if version is not None:
                queries |= {q.id: q.name for f in version.families for q in f.queries}
        return cls(families, queries)


def _with_filters(text: FamilyText, former: FamilyText | None) -> FamilyText:
    if former is None:
        return text
    filters = {side: {**former.filters[side], **text.filters[side]} for side in text.filters}
    return FamilyText(text.title, text.labels, filters)


def _texts(plan: Plan) -> dict[str, FamilyText]:
    streams = stream_names(plan)
    # A departed family may read a stream that no longer exists; then the stream's id replaces its name.
    streams |= {i: str(i) for f in plan.families for i in (f.stream_a, f.stream_b) if i not in streams}
    return {f.id: family_text(f, streams) for f in plan.families}


def _head(step: Primitive, names: _Names) -> dict[str, Any]:
    title = names.families[step.family].title
    return {"type": KINDS[type(step)], "family": title, "family_id": step.family, "join": step.join}


def _facts(step: Primitive, names: _Names) -> dict[str, Any]:
    """Return the attributes of a primitive except its family and join, and its text."""
    text = names.families[step.family]
    match step:
        case SetFilter(side=side, w_start_us=start, w_end_us=to, keep=keep):
            shown = None if keep is None else text.keep(side, keep)
            facts: dict[str, Any] = {
                "side": side,
                "w_start_us": start,
                "w_end_us": _bounded(to),
                "keep": shown,
                "keep_bits": None if keep is None else list(keep),
            }
            words = f"of {_window(step, step, text)}: {'every row' if shown is None else shown}"
        case SetRoutes(queries=ids):
            facts = {"queries": [names.queries[i] for i in ids]}
            words = f"to {', '.join(facts['queries'])}"
        case _:
            return _place(step, text)
    return facts | {"text": f"{_verb(step)} {words}"}


def _place(step: Primitive, text: FamilyText) -> dict[str, Any]:
    """Return the position of a primitive, and its text; most types have no other attributes."""
    match step:
        case Split(side=side, at_us=at) | Merge(side=side, at_us=at):
            facts: dict[str, Any] = {"side": side, "at_us": at}
            words = f"{text.labels[side]} at {display_duration(at)}"
        case Extend(side=side, from_us=start, to_us=to) | Truncate(side=side, from_us=start, to_us=to):
            facts = {"side": side, "from_us": _bounded(start), "to_us": _bounded(to)}
            words = f"{text.labels[side]} from {display_duration(start)} to {display_duration(to)}"
        case _:
            facts, words = {}, step.join
    return facts | {"text": f"{_verb(step)} {words}"}


def _short_facts(run: Sequence[Primitive], names: _Names) -> dict[str, Any]:
    first, last = run[0], run[-1]
    text = names.families[first.family]
    if isinstance(first, SetRoutes):
        now, was = set(first.queries), set(first.was)
        added = _cut_short([names.queries[i] for i in first.queries if i not in was])
        removed = _cut_short([names.queries[i] for i in first.was if i not in now])
        facts: dict[str, Any] = {"added": added, "removed": removed}
        words = _signed(added, removed)
    elif isinstance(first, SetFilter) and isinstance(last, SetFilter):
        added, removed = (
            _cut_short([_filter(text, first.side, bit) for bit in bits]) for bits in _changed_bits(first)
        )
        facts = {"side": first.side, "w_start_us": first.w_start_us, "w_end_us": _bounded(last.w_end_us)}
        facts |= {"slices": len(run), "added": added, "removed": removed}
        words = f"of {_window(first, last, text)}: {_signed(added, removed)}"
    else:
        return _place(first, text)
    return facts | {"text": f"{_verb(first)} {words}"}


def _alike(one: Primitive, other: Primitive) -> bool:
    """Return whether two primitives change the filters of neighbouring slices in the same way."""
    return (
        isinstance(one, SetFilter)
        and isinstance(other, SetFilter)
        and (one.family, one.join, one.side, one.w_end_us)
        == (other.family, other.join, other.side, other.w_start_us)
        and _changed_bits(one) == _changed_bits(other)
    )


def _changed_bits(step: SetFilter) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Return the bits of the added and of the removed filters; None is a filter that every row passes."""

    def bits(keep: Keep) -> tuple[int | None, ...]:
        return (None,) if keep is None else keep

    now, before = bits(step.keep), bits(step.was)
    came, went = set(now).difference(before), set(before).difference(now)
    return tuple(b for b in now if b in came), tuple(b for b in before if b in went)


def _filter(text: FamilyText, side: SideName, bit: int | None) -> str:
    return "every row" if bit is None else text.filters[side][bit][0]


def _window(first: SetFilter, last: SetFilter, text: FamilyText) -> str:
    window = f"[{display_duration(first.w_start_us)}, {display_duration(last.w_end_us)})"
    return f"{text.labels[first.side]} {window}"


def _signed(added: Iterable[str], removed: Iterable[str]) -> str:
    return ", ".join([*(f"+ {name}" for name in added), *(f"- {name}" for name in removed)])


def _cut_short(names: list[str]) -> list[str]:
    if len(names) <= MOST_NAMES:
        return names
    return [*names[:MOST_NAMES], f"{len(names) - MOST_NAMES} more"]


def _verb(step: Primitive) -> str:
    return KINDS[type(step)].replace("-", " ")


def _bounded(window: int) -> int | None:
    return None if window >= UNBOUNDED_US else window
