"""Document of a stream's contract: its promises about later rows.

punctuations: {on: [[item_id]], violation: drop, remember: window, column: closes, open_time: 2h}
constraints: {unique: [item_id], clustered: item_id, ordered: {seq: 100}}
order: {column: epoch, scramble: 500, descending: false}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from catalog.columns.arrow_types import PUNCTUATION_COLUMN
from catalog.errors import InvalidDuration
from catalog.times.durations import format_duration, parse_duration_us
from catalog.values.stream import Column, Constraints, Order, Punctuations
from catalog.wording.wording import nearest_or_known
from planner.expressions.types.column_types import decimal_parts
from service.errors import InvalidStream

_WINDOW, _FOREVER = "window", "forever"
_MONITOR: Final = "monitor"
#: Types of columns that can order a stream, with exact 64-bit keys. Decimals of up to 18 digits can order a
#: stream, too.
_ORDERING = ("int", "bigint", "date", "timestamp")
_MOST_DIGITS = 18
#: Largest scrambling factor. It is limited because every bucket keeps a summary of that many last rows of a
#: stream.
MOST_SCRAMBLE = 1_000_000


class _ContractPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PunctuationsDocument(_ContractPart):
    """Contract about punctuations, which promise that no later row has the values that they name."""

    on: list[list[str]] = Field(
        min_length=1,
        description="Sets of columns; each punctuation fixes the values of one set. A query uses "
        "punctuations that fix exactly the columns of its join key.",
    )
    violation: Literal["drop", "stop"] = Field(
        default="drop",
        description="How to treat a row that breaks a promise. `drop`: the row is not joined; it is counted "
        "and stored with the late rows. `stop`: the engine stops before the batch is committed.",
    )
    remember: str | int | float = Field(
        default=_WINDOW,
        description="How long promises are remembered. `window`: as long as windows require. A duration such "
        "as `1h`: at least for that length of event time. `forever`: without limit.",
    )
    column: str | None = Field(
        default=None,
        description="Boolean column of a `files` stream. A row in which it is true is only a punctuation: "
        "it fixes the values of the columns in `on`, which then has a single set.",
    )
    open_time: str | int | float | None = Field(
        default=None,
        description="Mean event time from a row of another stream until this stream closes the row's key, a "
        "duration. The planner uses it to estimate how many rows slices hold; results do not depend on it. "
        "If it is left out, the running job measures it.",
    )

    def to_value(self, stream: str, columns: Sequence[Column], source: str) -> Punctuations:
        """Return the contract.

        Args:
            stream: Name of the stream, for errors.
            columns: Its columns.
            source: Type of its source.

        Raises:
            InvalidStream: The contract does not fit the stream; the error's ``path`` names the part.
        """
        where = ("punctuations",)
        if any(column.name == PUNCTUATION_COLUMN for column in columns):
            raise InvalidStream(
                f'stream "{stream}" has a column "{PUNCTUATION_COLUMN}", a name reserved for punctuations',
                hint="Rename the column.",
                path=where,
            )
        sets = []
        for number, names in enumerate(self.on):
            sets.append(_columns(stream, columns, names, (*where, "on", number)))
        for number, fixed in enumerate(sets):
            if set(fixed) in map(set, sets[:number]):
                raise InvalidStream(
                    f"the set of columns {', '.join(fixed)} is given twice",
                    hint="Name each set of columns once.",
                    path=(*where, "on", number),
                )
        column = None
        if self.column is not None:
            column = self._column(stream, columns, source)
        remember_us, open_time_us = self._remember_us(), self._open_time_us()
        return Punctuations(tuple(sets), self.violation, remember_us, column, open_time_us)

    def _column(self, stream: str, columns: Sequence[Column], source: str) -> str:
        assert self.column is not None
        where = ("punctuations", "column")
        (name,) = _columns(stream, columns, [self.column], where)
        kind = next(column.type for column in columns if column.name == name)
        if kind != "boolean":
            raise InvalidStream(
                f'column "{name}" of stream "{stream}" has type {kind}',
                detail="The column must say which rows are punctuations.",
                hint="Name a column of type boolean.",
                path=where,
            )
        if source != "files":
            raise InvalidStream(
                f"streams of source type {source} cannot mark punctuations by a column",
                hint=f"Leave it out and post punctuations to /api/v1/streams/{stream}/punctuations.",
                path=where,
            )
        if len(self.on) > 1:
            raise InvalidStream(
                f'column "{name}" cannot say which of {len(self.on)} sets of columns a row fixes',
                hint="Name one set in on, or leave the column out.",
                path=where,
            )
        return name

    def _remember_us(self) -> int | None:
        if self.remember == _WINDOW:
            return 0
        if self.remember == _FOREVER:
            return None
        return _duration_us("remember", self.remember, f"{_WINDOW}, {_FOREVER} or a duration such as 1h")

    def _open_time_us(self) -> int | None:
        if self.open_time is None:
            return None
        found = _duration_us("open_time", self.open_time, "a duration such as 2h")
        if found <= 0:
            raise InvalidStream(
                "open_time: the duration is 0",
                hint="Write a duration such as 2h, or leave it out.",
                path=("punctuations", "open_time"),
            )
        return found


def _duration_us(name: str, text: str | float, valid: str) -> int:
    try:
        return parse_duration_us(text)
    except InvalidDuration as error:
        raise InvalidStream(
            f"{name}: {error.primary}",
            detail=error.detail,
            hint=f"Write {valid}.",
            path=("punctuations", name),
        ) from error


class ConstraintsDocument(_ContractPart):
    """Constraints on the rows of a stream that imply punctuations."""

    unique: list[str] = Field(
        default_factory=list,
        description="Columns whose combined values occur once: each row promises that no later row has them.",
    )
    clustered: str | list[str] = Field(
        default_factory=list,
        description="Column, or columns, whose combined values come in runs: a row with new values "
        "promises that no later row has the values of the run before.",
    )
    ordered: dict[str, Annotated[int, Field(ge=0, le=2**62)]] = Field(
        default_factory=dict,
        description="Ascending columns of whole numbers, each with the largest amount by which a value may "
        "be less than an earlier value.",
    )

    def to_value(self, stream: str, columns: Sequence[Column]) -> Constraints:
        """Return the constraints; arguments and errors are those of ``PunctuationsDocument.to_value``."""
        where = "constraints"
        unique = _columns(stream, columns, self.unique, (where, "unique")) if self.unique else ()
        runs = [self.clustered] if isinstance(self.clustered, str) else self.clustered
        clustered = _columns(stream, columns, runs, (where, "clustered")) if runs else ()
        ordered = _columns(stream, columns, list(self.ordered), (where, "ordered")) if self.ordered else ()
        for name in ordered:
            kind = next(column.type for column in columns if column.name == name)
            if kind not in ("int", "bigint"):
                raise InvalidStream(
                    f'column "{name}" of stream "{stream}" has type {kind}, which is not a whole number',
                    detail="The number given for an ordered column says by how much its values may decrease.",
                    hint="Name a column of type int or bigint; event time is ordered by lateness.",
                    path=(where, "ordered", name),
                )
        return Constraints(unique, clustered, tuple(zip(ordered, self.ordered.values(), strict=True)))


class OrderDocument(_ContractPart):
    """Order of the rows of a stream, by one of their columns."""

    column: str = Field(
        description="The column, of type int, bigint, date, timestamp or a decimal of up to 18 digits. Rows "
        "in which the column is NULL are not counted."
    )
    scramble: Annotated[int, Field(ge=0, le=MOST_SCRAMBLE)] | Literal["monitor"] = Field(
        description="How far rows may arrive out of order: the maximum number of rows by which a row "
        "comes behind a row that follows it in the order. `monitor` finds this number from the rows, with a "
        "margin.",
    )
    descending: bool = Field(default=False, description="Whether the values descend.")

    def to_value(self, stream: str, columns: Sequence[Column]) -> Order:
        """Return the order; arguments and errors are those of ``PunctuationsDocument.to_value``."""
        where = ("order", "column")
        (name,) = _columns(stream, columns, [self.column], where)
        kind = next(column.type for column in columns if column.name == name)
        decimal = decimal_parts(kind)
        if kind not in _ORDERING and (decimal is None or decimal[0] > _MOST_DIGITS):
            raise InvalidStream(
                f'column "{name}" of stream "{stream}" has type {kind}, which cannot order a stream',
                hint=f"Name a column of type {', '.join(_ORDERING)}, or a decimal of up to "
                f"{_MOST_DIGITS} digits.",
                path=where,
            )
        scramble = None if self.scramble == _MONITOR else self.scramble
        return Order(name, scramble, self.descending)


def order_document(order: Order | None) -> dict[str, Any] | None:
    """Return the order of a stream as a document."""
    if order is None:
        return None
    scramble = _MONITOR if order.scramble is None else order.scramble
    return {"column": order.column, "scramble": scramble, "descending": order.descending}


def punctuations_document(contract: Punctuations | None) -> dict[str, Any] | None:
    """Return a contract about punctuations as a document."""
    if contract is None:
        return None
    remember: str = _FOREVER
    if contract.remember_us is not None:
        remember = format_duration(contract.remember_us) if contract.remember_us else _WINDOW
    return {
        "on": [list(names) for names in contract.on],
        "violation": contract.violation,
        "remember": remember,
        "column": contract.column,
        "open_time": None if contract.open_time_us is None else format_duration(contract.open_time_us),
    }


def constraints_document(constraints: Constraints) -> dict[str, Any] | None:
    """Return constraints as a document, or None if there are no constraints."""
    if constraints == Constraints():
        return None
    return {
        "unique": list(constraints.unique),
        "clustered": list(constraints.clustered),
        "ordered": dict(constraints.ordered),
    }


def _columns(
    stream: str, columns: Sequence[Column], names: Sequence[str], path: tuple[str | int, ...]
) -> tuple[str, ...]:
    """Return column names as the stream declares them; the given names may differ in case."""
    if not names:
        raise InvalidStream(
            "a set of columns is empty", hint="Name the columns that a punctuation fixes.", path=path
        )
    declared = {column.name.lower(): column.name for column in columns}
    found: list[str] = []
    for name in names:
        if name.lower() not in declared:
            raise InvalidStream(
                f'column "{name}" does not exist in stream "{stream}"',
                hint=nearest_or_known(name, list(declared.values())),
                path=path,
            )
        if declared[name.lower()] in found:
            raise InvalidStream(f'column "{name}" is named twice', hint="Name it once.", path=path)
        found.append(declared[name.lower()])
    return tuple(found)
