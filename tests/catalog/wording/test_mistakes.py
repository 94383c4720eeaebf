"""Errors of pydantic in our words: the same text whatever asks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from catalog.wording.mistakes import Mistake, TextLike, mistake


class Files(BaseModel):
    type: Literal["files"]


class Http(BaseModel):
    type: Literal["http"]


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="n", min_length=2, max_length=5)
    word: Annotated[str, TextLike("^[a-z]*$", "small letters, such as abc")] | None = None
    strategy: Literal["mem-opt", "cpu-opt"] = "mem-opt"
    rows: int = Field(default=2, gt=1, le=9)
    part: float = Field(default=0.5, ge=0, lt=1, allow_inf_nan=False)
    on: bool = True
    names: list[str] = Field(default_factory=list, max_length=1)
    nulls: tuple[str, ...] = ()
    by_key: dict[str, int] = Field(default_factory=dict, min_length=1)
    source: Annotated[Files | Http, Field(discriminator="type")] | None = None
    odd: int = 1

    @field_validator("odd")
    @classmethod
    def _is_odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("Write an odd number")
        return value


def first_of(document: Any, known_names: Any = None) -> Mistake:
    with pytest.raises(ValidationError) as caught:
        Document.model_validate(document)
    error = caught.value.errors()[0]
    return mistake(error, error["loc"], known_names)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (3, "x: expected an object with keys and values, not 3"),
        ({"name": 3}, "x: expected text, not 3"),
        ({"name": "a"}, 'x: expected text of 2 or more characters, not "a"'),
        ({"name": "abcdef"}, 'x: expected text of at most 5 characters, not "abcdef"'),
        ({"word": "ABC"}, 'x: expected small letters, such as abc, not "ABC"'),
        ({"word": "abc\n"}, 'x: expected small letters, such as abc, not "abc\\n"'),
        ({"word": 3}, "x: expected text, not 3"),
        ({"name": "é" * 59}, "x: expected text of at most 5 characters"),
        ({"strategy": "best"}, 'x: "best" is not known'),
        ({"strategy": []}, "x: expected mem-opt, cpu-opt"),
        ({"rows": 1}, "x: expected more than 1, not 1"),
        ({"rows": 10}, "x: expected at most 9, not 10"),
        ({"rows": "10"}, "x: expected at most 9, not 10"),
        ({"rows": "ten"}, 'x: expected a whole number, not "ten"'),
        ({"rows": 1.5}, "x: expected a whole number, not 1.5"),
        ({"rows": None}, "x: expected a whole number"),
        ({"part": -1}, "x: expected at least 0, not -1"),
        ({"part": 1}, "x: expected less than 1, not 1"),
        ({"part": "much"}, 'x: expected a number, not "much"'),
        ({"part": float("nan")}, "x: expected a finite number, not NaN"),
        ({"on": "maybe"}, 'x: expected true or false, not "maybe"'),
        ({"names": "a"}, 'x: expected a list, not "a"'),
        ({"nulls": "NA"}, 'x: expected a list, not "NA"'),
        ({"names": ["a", "b"]}, "x: expected at most 1 entries, not 2"),
        ({"by_key": {}}, "x: expected 1 or more entries, not 0"),
        ({"by_key": []}, "x: expected an object with keys and values"),
        ({"odd": 2}, "x: write an odd number"),
        ({"nam": "a"}, "x is not known"),
        ({"source": {}}, "x is missing"),
        ({"source": {"type": "file"}}, 'source type "file" is not known'),
    ],
)
def test_each_finding_has_one_text(document: Any, said: str) -> None:
    assert first_of(document).said_of("x") == said


def test_the_schema_of_a_text_shows_its_pattern() -> None:
    word = Document.model_json_schema()["properties"]["word"]
    assert word["anyOf"][0] == {"type": "string", "pattern": "^[a-z]*$"}


def test_a_word_that_is_not_known_comes_with_those_that_are() -> None:
    found = first_of({"strategy": "cpuopt"})

    assert (found.path, found.detail, found.hint) == (
        ("strategy",),
        "Known: mem-opt, cpu-opt.",
        'Did you mean "cpu-opt"?',
    )
    assert first_of({"strategy": "x"}).hint is None


def test_the_tag_of_a_union_is_the_place() -> None:
    found = first_of({"source": {"type": "file"}})
    assert (found.path, found.hint) == (("source", "type"), 'Did you mean "files"?')
    assert first_of({"source": {"type": "x"}}).hint == "Write one of files, http."

    found = first_of({"source": {}}, lambda path: ["files", "http"] if path == ("source", "type") else [])
    assert (found.path, found.hint) == (("source", "type"), "Write one of files, http.")


def test_names_that_may_stand_there_make_a_hint() -> None:
    assert first_of({"nam": "a"}).hint is None
    assert first_of({"nam": "a"}, lambda _path: ["name", "rows"]).hint == 'Did you mean "name"?'
