"""Errors of pydantic in the wording of Sluice, for files, requests, settings and stored values alike.

    finding                  error about a key or its value              hint
    missing                  key "cql" is missing
    extra_forbidden          key "latenes" is not known                  Did you mean "lateness"?
    literal_error            strategy: "best" is not known
    int_parsing              limit: expected a whole number, not "ten"
    greater_than_equal       rate: expected at least 0, not -1
    text_like                driver_memory: expected a size such as 2g, not "much"
    union_tag_invalid        source type "file" is not known             Did you mean "files"?

The caller names the kind of place (key, field, parameter, setting) and locates it by line and column, by
JSON Pointer or by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from catalog.wording.wording import did_you_mean, nearest_or_known

Path = tuple[str | int, ...]
KnownNames = Callable[[Path], Sequence[str]]

#: Most characters of a value that an error repeats.
_MOST_SHOWN = 60

_AN_OBJECT = "an object with keys and values"

#: Descriptions of the expected value, by pydantic's error type; names in braces are fields of the error.
_EXPECTED: Mapping[str, str] = {
    "model_type": _AN_OBJECT,
    "model_attributes_type": _AN_OBJECT,
    "dict_type": _AN_OBJECT,
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "text",
    "string_too_short": "text of {min_length} or more characters",
    "string_too_long": "text of at most {max_length} characters",
    "text_like": "{like}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "{min_length} or more entries, not {actual_length}",
    "too_long": "at most {max_length} entries, not {actual_length}",
}


_BOUNDS = ("greater_than_equal", "greater_than", "less_than_equal", "less_than")


@dataclass(frozen=True, slots=True)
class TextLike:
    """Annotation of a text that must match a pattern.

    The error describes the expected form in words and does not show the pattern.

    Attributes:
        pattern: Regular expression; schemas show it.
        like: Expected form in words, with an example.
    """

    pattern: str
    like: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check first the type and then the pattern."""
        matching = core_schema.custom_error_schema(
            core_schema.str_schema(pattern=self.pattern),
            "text_like",
            custom_error_message="expected {like}",
            custom_error_context={"like": self.like},
        )
        return core_schema.chain_schema([handler(source), matching])

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the pattern to the JSON schema."""
        return {**handler(schema), "pattern": self.pattern}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One error that a model finds.

    Attributes:
        path: Keys and indexes that lead from the top of the document to the place.
        about: Kind of the text: ``key`` if it continues a sentence about the key, ``value`` if it is about
            the value, ``whole`` if it is a complete sentence.
        text: Text of the error, lower case, no full stop.
        found: The value, as JSON; None if it is long, an object or a list.
        detail: Facts, in sentences.
        hint: What to write instead.
    """

    path: Path
    about: Literal["key", "value", "whole"]
    text: str
    found: str | None = None
    detail: str | None = None
    hint: str | None = None

    def said_of(self, subject: str) -> str:
        """Return the error as one line.

        Args:
            subject: Name of the place, such as ``field "rate"``; if empty, the line does not name it.

        >>> Mistake(("rate",), "value", "expected at least 0", found="-1").said_of('field "rate"')
        'field "rate": expected at least 0, not -1'
        """
        if self.about == "key":
            return f"{subject} {self.text}"
        text = self.text if self.found is None else f"{self.text}, not {self.found}"
        return f"{subject}: {text}" if subject and self.about == "value" else text


def mistake(error: Mapping[str, Any], path: Path, known_names: KnownNames | None = None) -> Mistake:
    """Translate one error of pydantic.

    Args:
        error: One item of ``ValidationError.errors()``.
        path: Place of the error.
        known_names: Function that returns, for a path, the keys allowed in place of the path's last key, or
            the allowed values of a union's tag. If None, hints list no names.

    >>> mistake({"type": "less_than_equal", "input": 2, "ctx": {"le": 1.0}}, ("part",)).said_of("part")
    'part: expected at most 1, not 2'
    """
    kind, facts = error["type"], error.get("ctx", {})
    name = str(path[-1]) if path else ""
    if kind == "missing":
        return Mistake(path, "key", "is missing")
    if kind == "extra_forbidden":
        hint = nearest_or_known(name, known_names(path)) if known_names else None
        return Mistake(path, "key", "is not known", hint=hint)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        tag = str(facts["discriminator"]).strip("'")
        path = (*path, tag)
        if kind == "union_tag_not_found":
            known = known_names(path) if known_names else ()
            return Mistake(path, "key", "is missing", hint=_one_of(known) if known else None)
        known = _quoted_names(facts["expected_tags"])
        hint = did_you_mean(facts["tag"], known) or _one_of(known)
        return Mistake(path, "whole", f'{name} {tag} "{facts["tag"]}" is not known', hint=hint)
    found = _shown(error["input"])
    if kind == "literal_error":
        known = _quoted_names(facts["expected"].replace(" or ", ", "))
        if found is None:
            return Mistake(path, "value", f"expected {', '.join(known)}")
        near = did_you_mean(str(error["input"]), known)
        return Mistake(
            path, "value", f"{found} is not known", detail=f"Known: {', '.join(known)}.", hint=near
        )
    if kind in _EXPECTED:
        text = _EXPECTED[kind].format_map({fact: _plain(value) for fact, value in facts.items()})
        if found is not None and kind in _BOUNDS:
            found = found.strip('"')  # numbers in query strings and environment variables are texts
        return Mistake(path, "value", f"expected {text}", found=found)
    message = str(error["msg"]).removeprefix("Value error, ")
    return Mistake(path, "value", f"{message[:1].lower()}{message[1:]}")


def _one_of(names: Sequence[str]) -> str:
    return f"Write one of {', '.join(names)}."


def _quoted_names(text: str) -> list[str]:
    return [name.strip(" '") for name in text.split(",")]


def _shown(value: object) -> str | None:
    """Return a scalar as JSON; a missing value is shown as null."""
    if not isinstance(value, str | int | float):
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else None


def _plain(fact: object) -> object:
    """Return a bound as it was declared, because pydantic turns a bound of 1 into 1.0."""
    return int(fact) if isinstance(fact, float) and fact.is_integer() else fact
