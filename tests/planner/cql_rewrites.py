"""Filters as trees, and other ways to write the same filter.

A tree is a text (a leaf that is left alone), ``(column, operator, constant)``, or a word and its parts.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tests.planner.cql_filters import CONSTANTS

Tree = str | tuple[str, ...] | list["Tree"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}

_LEAF: st.SearchStrategy[Tree] = st.one_of(
    st.sampled_from(["i", "v", "s", "m"]).flatmap(
        lambda c: st.tuples(st.just(c), st.sampled_from(sorted(_MIRRORED)), st.sampled_from(CONSTANTS[c][:4]))
    ),
    st.sampled_from(["F.f", "F.s LIKE 'a%'", "F.v IS NULL", "F.w < F.v", "F.i IN (1, 2)"]),
)

TREE: st.SearchStrategy[Tree] = st.recursive(
    _LEAF,
    lambda inner: st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)).map(
        lambda pair: [pair[0], *pair[1]]
    ),
    max_leaves=6,
)


def written(tree: Tree) -> str:
    """Return the tree as it is."""
    if isinstance(tree, str):
        return tree
    if isinstance(tree, tuple):
        column, operator, constant = tree
        return f"F.{column} {operator} {constant}"
    word, *parts = tree
    return "(" + f" {word} ".join(written(part) for part in parts) + ")"


def rewritten(tree: Tree, chosen: random.Random) -> str:
    """Return the tree written in another way that is true for the same rows."""
    text = _rewritten(tree, chosen)
    return chosen.choice(
        [f"{text}", f"({text})", f"NOT (NOT ({text}))", f"({text}) AND TRUE", f"1 > 2 OR {text}"]
    )


def _rewritten(tree: Tree, chosen: random.Random) -> str:
    if isinstance(tree, str):
        return tree
    if isinstance(tree, tuple):
        column, operator, constant = tree
        forms = [
            f"F.{column} {operator} {constant}",
            f"{constant} {_MIRRORED[operator]} F.{column}",
            f"NOT (F.{column} {_NEGATED[operator]} {constant})",
            f"NOT {constant} {_MIRRORED[_NEGATED[operator]]} F.{column}",
        ]
        if operator == "=":
            forms += [
                f"F.{column} IN ({constant}, {constant})",
                f"F.{column} BETWEEN {constant} AND {constant}",
            ]
        if operator == "<>":
            forms += [
                f"F.{column} NOT IN ({constant})",
                f"(F.{column} < {constant} OR {constant} < F.{column})",
            ]
        return chosen.choice(forms)
    word, *parts = _multiplied_out(tree, chosen) if chosen.random() < 0.3 else tree
    assert isinstance(word, str)
    other = "OR" if word == "AND" else "AND"
    texts = [rewritten(part, chosen) for part in parts]
    texts = [f"({text})" for text in texts]
    if chosen.random() < 0.3:
        texts.append(chosen.choice(texts))
    if chosen.random() < 0.3:  # x AND (x OR y) is x, and x OR (x AND y).
        texts.append(f"({chosen.choice(texts)} {other} F.g)")
    if chosen.random() < 0.3:
        texts.append("TRUE" if word == "AND" else "FALSE")
    if chosen.random() < 0.2:
        texts.append(f"F.j IS NULL {'OR' if word == 'AND' else 'AND'} F.j IS NOT NULL")
        texts[-1] = f"({texts[-1]})"
    chosen.shuffle(texts)
    return "(" + f" {word} ".join(texts) + ")"


def _multiplied_out(tree: list[Tree], chosen: random.Random) -> list[Tree]:
    """Return ``(x AND z) OR (y AND z)`` for ``(x OR y) AND z``, likewise with AND and OR swapped."""
    word, *parts = tree
    inner = [n for n, part in enumerate(parts) if isinstance(part, list) and part[0] != word]
    if not inner:
        return tree
    at = chosen.choice(inner)
    other, *alternatives = parts[at]
    rest = parts[:at] + parts[at + 1 :]
    return [other, *([word, part, *rest] for part in alternatives)]
