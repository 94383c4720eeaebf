"""Errors are located in the text of the innermost function that is marked with ``located``."""

from __future__ import annotations

import pytest
from sqlglot import Token, TokenType, exp

from catalog.errors import InvalidInput
from planner.sql.dialect.locate import located


@located
def _fail(text: str, at: object) -> None:
    raise InvalidInput("no", at=at)


@located
def _fail_inside(text: str, inner: str, at: object) -> None:
    _fail(inner, at)


@pytest.mark.parametrize(
    ("at", "place"),
    [
        ((3, 5), (2, 1, 2)),
        ((3, 99), (2, 1, 4)),
        (Token(TokenType.VAR, "ab", start=0, end=1), (1, 1, 2)),
        (Token(TokenType.SENTINEL, ""), (2, 3, 1)),
    ],
    ids=["offsets", "offsets past the line", "token", "sentinel"],
)
def test_the_innermost_text_locates_an_error_once(at: object, place: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidInput) as caught:
        _fail_inside("\n\nouter", "ab\ncd  \n", at)
    location = caught.value.location
    assert location is not None
    assert caught.value.at is None
    assert location.text == "ab\ncd  \n"
    assert (location.line, location.column, location.length) == place


def test_a_node_without_a_position_has_no_location() -> None:
    with pytest.raises(InvalidInput) as caught:
        _fail("a.v", exp.column("v", "a"))
    assert (caught.value.at, caught.value.location) == (None, None)


def test_another_kind_of_place_is_refused() -> None:
    with pytest.raises(TypeError, match="'v' is not a place"):
        _fail("a.v", "v")
