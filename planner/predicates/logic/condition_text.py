"""Conditions written as DuckDB text; equal trees get the same text.

All( AnyOf(v in {1, 2}, w in {NULL}),  v in (0, 10] )
"v" <= 10 AND "v" > 0 AND ("v" IN (1, 2) OR "w" IS NULL)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.predicates.conditions import FALSE, TRUE, All, AnyOf, Atom, Condition
from planner.predicates.constants import constant_text
from planner.predicates.value_sets import ALL, NONE, NULL, VALUES, Cut, Value, ValueSet, above, below, points


def render(condition: Condition) -> str:
    """Return a condition as DuckDB text; AND and OR list each operand once, sorted by text.

    >>> from planner.predicates.read_condition import read_condition
    >>> render(read_condition('"v" > 10 AND NOT "f"')), render(read_condition('NOT "f" OR "v" IN (10)'))
    ('"v" > 10 AND NOT "f"', '"v" = 10 OR NOT "f"')
    """
    return text_of(written(condition))


def written(condition: Condition) -> Condition:
    """Return a condition with one comparison per atom; AND and OR list each part once, sorted by text."""
    if isinstance(condition, Atom):
        return _comparisons(condition)
    kind = type(condition)
    parts: dict[str, Condition] = {}
    for part in map(written, condition.parts):
        for each in part.parts if isinstance(part, kind) and part.parts else (part,):
            parts.setdefault(_operand(each), each)
    if len(parts) == 1:
        return next(iter(parts.values()))
    return kind(tuple(part for _, part in sorted(parts.items())))


def text_of(condition: Condition) -> str:
    """Return the text of a condition that ``written`` has returned."""
    if isinstance(condition, Atom):
        return _comparison(condition)
    if not condition.parts:
        return "TRUE" if condition == TRUE else "FALSE"
    word = "AND" if isinstance(condition, All) else "OR"
    return f" {word} ".join(_operand(part) for part in condition.parts)


def _operand(condition: Condition) -> str:
    """Return the text of a condition, in parentheses if AND or OR connects its parts."""
    text = text_of(condition)
    return text if isinstance(condition, Atom) or not condition.parts else f"({text})"


@dataclass(slots=True)
class _Range:
    """Values between two cuts, except the values in ``holes``; a cut of None means no bound."""

    start: Cut | None
    end: Cut | None
    holes: list[Value]


def _comparisons(atom: Atom) -> Condition:
    """Return the comparisons that express an atom."""
    values = atom.values
    if values in (ALL, NONE):
        return TRUE if values == ALL else FALSE
    if not values.cuts:
        tests = [Atom(text, values, columns=atom.columns) for text in (atom.text, atom.other) if text]
        return tests[0] if len(tests) == 1 else written(All(tuple(tests)))
    if atom.domain == "boolean":
        true = not values.low and not values.null
        return atom if atom.meaning is None or not true else written(atom.meaning)
    one_comparison = atom.domain == "order" or (len(values.cuts) == 1 and not values.null)
    return atom if one_comparison else _ranges(atom)


def _ranges(atom: Atom) -> Condition:
    """Return an atom as ranges, each without some values (holes), and as a list of single values."""
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
    parts = [_bounded(atom, each) for each in ranges]
    if singles:
        parts.append(replace(atom, values=points(singles)))
    if atom.values.null:
        (only,) = ranges if len(parts) == 1 and len(ranges) == 1 else (None,)
        if only is not None and only.start is None and only.end is None and len(only.holes) == 1:
            return atom
        parts.append(Atom(atom.text, NULL, columns=atom.columns))
    return parts[0] if len(parts) == 1 else _connected(AnyOf, parts)


def _bounded(atom: Atom, each: _Range) -> Condition:
    sets: list[ValueSet] = []
    if each.start is not None:
        value, behind = each.start
        sets.append(above(value, inclusive=not behind))
    if each.end is not None:
        value, behind = each.end
        sets.append(below(value, inclusive=behind))
    if each.holes:
        sets.append(points(each.holes).inverse)
    parts = [replace(atom, values=values) for values in sets]
    return parts[0] if len(parts) == 1 else _connected(All, parts)


def _connected(kind: type[All | AnyOf], parts: Sequence[Condition]) -> Condition:
    flat = [p for part in parts for p in (part.parts if isinstance(part, kind) else (part,))]
    return kind(tuple(sorted(flat, key=_operand)))


def _comparison(atom: Atom) -> str:
    """Return the text of an atom that is one comparison."""
    values = atom.values
    if not values.cuts:
        return f"{atom.text} {'IS NOT NULL' if values == VALUES else 'IS NULL'}"
    if atom.domain == "order":
        return f"{atom.text} {_order(values)} {atom.other}"
    if atom.domain == "boolean":
        return _boolean(atom)
    texts = [constant_text(value, atom.domain) for value, _ in values.cuts]
    if len(values.cuts) == 1:
        behind = values.cuts[0][1]
        operator = ("<=" if behind else "<") if values.low else (">" if behind else ">=")
        return f"{atom.text} {operator} {texts[0]}"
    if values.null:
        return f"{atom.text} IS DISTINCT FROM {texts[0]}"
    one, many = ("<>", "NOT IN") if values.low else ("=", "IN")
    texts = texts[::2]
    return f"{atom.text} {one} {texts[0]}" if len(texts) == 1 else f"{atom.text} {many} ({', '.join(texts)})"


def _order(values: ValueSet) -> str:
    """Return the operator that is TRUE for the given orders (below, at or above 0) of two expressions."""
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


def _boolean(atom: Atom) -> str:
    """Return the test that a boolean is TRUE or that it is FALSE; the test may also accept NULL."""
    text = atom.text
    if atom.values.null:
        return f"{text} IS NOT {'TRUE' if atom.values.low else 'FALSE'}"
    if atom.values.low:
        return atom.negated or f"NOT {text}"
    return text[1:-1] if text.startswith("(") else text
