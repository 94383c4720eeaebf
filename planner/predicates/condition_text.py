"""Conditions written as DuckDB text, one text for one tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.expressions.constants import constant_text
from planner.expressions.value_sets import ALL, NONE, VALUES, Cut, Value
from planner.predicates.conditions import FALSE, TRUE, All, Atom, Condition, opposite

#: What connects the texts, and the texts.
_Shown = tuple[str, Sequence[str]]


def render(condition: Condition) -> str:
    """Return a condition as DuckDB text: parts of AND and OR each once, in order of their texts.

    >>> from planner.predicates.conditions import parse
    >>> render(parse('"v" > 10 AND NOT "f"')), render(parse('NOT "f" OR "v" IN (10)'))
    ('"v" > 10 AND NOT "f"', '"v" = 10 OR NOT "f"')
    """
    word, texts = _shown(condition)
    return f" {word} ".join(sorted(set(texts)))


def _shown(condition: Condition) -> _Shown:
    if isinstance(condition, Atom):
        return _atom(condition)
    if not condition.parts:
        return "AND", ["TRUE" if condition == TRUE else "FALSE"]
    if len(condition.parts) == 1:
        return _shown(condition.parts[0])
    word = "AND" if isinstance(condition, All) else "OR"
    return word, _connected(word, [_shown(part) for part in condition.parts])


def _connected(word: str, parts: Iterable[_Shown]) -> list[str]:
    """Return the texts of the parts under one connector, those of the other one in parentheses."""
    texts: list[str] = []
    for inner, shown in parts:
        if inner == word or len(shown) == 1:
            texts += shown
        else:
            texts.append(f"({f' {inner} '.join(sorted(set(shown)))})")
    return texts


def _atom(atom: Atom) -> _Shown:
    text, values = atom.text, atom.values
    if values in (ALL, NONE):
        return _shown(TRUE if values == ALL else FALSE)
    if not values.cuts:
        test = "IS NOT NULL" if values == VALUES else "IS NULL"
        return "AND", [f"{each} {test}" for each in (text, atom.other) if each]
    if atom.domain == "order":
        return "AND", [f"{text} {_order(atom)} {atom.other}"]
    if atom.domain == "boolean":
        return "AND", [_boolean(text, true=not values.low, null=values.null)]
    return _ranges(atom)


def _order(atom: Atom) -> str:
    """Return the comparison whose outcomes are those of the atom."""
    values = atom.values
    smaller, greater = values.low, values.low != (len(values.cuts) == 1)
    equal = not smaller if len(values.cuts) == 2 else values.cuts[0][1] == smaller
    return {
        (True, False, False): "<",
        (True, True, False): "<=",
        (False, True, False): "=",
        (False, True, True): ">=",
        (False, False, True): ">",
        (True, False, True): "<>",
    }[smaller, equal, greater]


def _boolean(text: str, *, true: bool, null: bool) -> str:
    """Return the test for one of TRUE and FALSE, and perhaps NULL."""
    if null:
        return f"{text} IS NOT {'FALSE' if true else 'TRUE'}"
    if not true:
        return opposite(text)
    return text[1:-1] if text.startswith("(") else text


@dataclass(slots=True)
class _Range:
    """Values between two cuts, None being no bound, without some in between."""

    start: Cut | None
    end: Cut | None
    holes: list[Value]


def _ranges(atom: Atom) -> _Shown:
    """Return the comparisons that a set of values is: bounds, single values, missing values."""
    cuts = [*([None] if atom.values.low else []), *atom.values.cuts]
    ends = [*cuts[1:], None] if len(cuts) % 2 else cuts[1:]
    ranges: list[_Range] = []
    singles: list[Value] = []
    for start, end in zip(cuts[::2], ends[::2], strict=True):
        if start is not None and end is not None and start[0] == end[0]:
            singles.append(start[0])
        elif ranges and start is not None and ranges[-1].end == (start[0], False):
            ranges[-1].holes.append(start[0])
            ranges[-1].end = end
        else:
            ranges.append(_Range(start, end, []))
    parts: list[_Shown] = [("AND", _bounded(atom, each)) for each in ranges]
    if singles:
        parts.append(("AND", [_listed(atom, singles, "=", "IN")]))
    if atom.values.null:
        (only,) = ranges if len(parts) == 1 and len(ranges) == 1 else (None,)
        if only is not None and only.start is None and only.end is None and len(only.holes) == 1:
            return "AND", [f"{atom.text} IS DISTINCT FROM {constant_text(only.holes[0], atom.domain)}"]
        parts.append(("AND", [f"{atom.text} IS NULL"]))
    return parts[0] if len(parts) == 1 else ("OR", _connected("OR", parts))


def _bounded(atom: Atom, each: _Range) -> list[str]:
    texts = []
    if each.start is not None:
        value, behind = each.start
        texts.append(f"{atom.text} {'>' if behind else '>='} {constant_text(value, atom.domain)}")
    if each.end is not None:
        value, behind = each.end
        texts.append(f"{atom.text} {'<=' if behind else '<'} {constant_text(value, atom.domain)}")
    return texts + ([_listed(atom, each.holes, "<>", "NOT IN")] if each.holes else [])


def _listed(atom: Atom, values: Sequence[Value], one: str, many: str) -> str:
    texts = [constant_text(value, atom.domain) for value in values]
    return f"{atom.text} {one} {texts[0]}" if len(texts) == 1 else f"{atom.text} {many} ({', '.join(texts)})"
