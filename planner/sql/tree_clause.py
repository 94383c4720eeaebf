"""TREE clause at the end of a query: the tree in which its streams are joined, as previews show it.

TREE ((a, b), c)          a with b, then their pairs with c
TREE ((a, b), (c, d))     a with b, c with d, then both kinds of pairs with each other
TREE (a, b, c)            as ((a, b), c), but the pairs of a and b are not stored
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from planner.errors import CqlSyntaxError

_FORM = "Write aliases of FROM in pairs of parentheses, such as TREE ((a, b), (c, d))."
_MARKS = frozenset({TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA})

#: Alias of a stream, or a tuple of the items in parentheses.
Named = Token | tuple["Named", ...]


@dataclass(frozen=True, slots=True)
class TreeClause:
    """A TREE clause as written.

    Attributes:
        word: Token of the word TREE.
        items: Items in the outer parentheses.
    """

    word: Token
    items: tuple[Named, ...]


def split_tree(tokens: Sequence[Token]) -> tuple[list[Token], TreeClause | None]:
    """Return the tokens of a query before TREE, and the TREE clause, or None if there is none.

    Args:
        tokens: Tokens of the query from SELECT on.

    Raises:
        CqlSyntaxError: TREE is not followed by aliases in parentheses.
    """
    opening = _last_opening(tokens)
    if opening is None or opening < 1 or tokens[opening - 1].text.upper() != "TREE":
        return list(tokens), None
    items, _ = _group(tokens, opening)
    return list(tokens[: opening - 1]), TreeClause(tokens[opening - 1], items)


def _last_opening(tokens: Sequence[Token]) -> int | None:
    """Return the index of the parenthesis that the last token closes, or None if it closes none."""
    depth = 0
    for place in range(len(tokens) - 1, -1, -1):
        kind = tokens[place].token_type
        depth += (kind == TokenType.R_PAREN) - (kind == TokenType.L_PAREN)
        if depth == 0:
            return place if kind == TokenType.L_PAREN else None
    return None


def _group(tokens: Sequence[Token], place: int) -> tuple[tuple[Named, ...], int]:
    """Return the items in parentheses, and the index after the closing parenthesis."""
    opened, items = tokens[place], list[Named]()
    while True:
        token = tokens[place + 1]
        if token.token_type == TokenType.L_PAREN:
            item, place = _group(tokens, place + 1)
            items.append(item)
        elif token.token_type in _MARKS:
            raise _unexpected(token)
        else:
            items.append(token)
            place += 2
        if tokens[place].token_type == TokenType.R_PAREN:
            break
        if tokens[place].token_type != TokenType.COMMA:
            raise _unexpected(tokens[place])
    if len(items) < 2:
        raise CqlSyntaxError("parentheses in TREE contain only one stream", hint=_FORM, at=opened)
    return tuple(items), place + 1


def _unexpected(token: Token) -> CqlSyntaxError:
    return CqlSyntaxError(f'unexpected "{token.text}" in TREE', hint=_FORM, at=token)
