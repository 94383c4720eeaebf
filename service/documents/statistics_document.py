"""Documents of statistics and of an explicit chain, from a request body, a file or an option.

{"streams": {"A": {"rate": 50.0, "row_bytes": 48}}, "filters": {"A.v < 0.2": 0.2},
 "join_selectivity": 0.025, "batch_s": 1.0}

{"boundaries_s": [10, 30]}    {"boundaries_s": {"A": [10, 30], "B": [30]}}    {"A": [10, 30], "B": [30]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from catalog.errors import InvalidInput
from catalog.steps import stream_sides
from catalog.values.query import UNBOUNDED_US, Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Stream
from catalog.wording.wording import nearest_or_known
from planner.bind.canonical import canonical_filter
from planner.costs.rates import ASSUMED_RATE_PER_S
from planner.errors import InvalidChain, UnknownStatistic
from planner.explain.preview import GivenChains
from planner.families.families import SideName, families
from planner.families.texts.display import predicate_text
from planner.families.texts.family_names import family_named, family_titles
from service.documents.yaml_files.document_errors import first_mistake
from service.documents.yaml_files.yaml_document import ItemPath, YamlDocument, read_yaml
from service.errors import InvalidStatistics

#: Key under which a list of boundaries applies to both streams.
_BOTH = "*"

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Fraction = Annotated[_Number, Field(ge=0, le=1)]
#: End of a slice, in seconds behind the other stream, or null if the slice is unbounded.
_Boundary = Annotated[_Number, Field(gt=0)] | None


class _StatisticsDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StreamNumbersDocument(_StatisticsDocument):
    """Statistics of a stream."""

    rate: Annotated[_Number, Field(ge=0)] | None = Field(
        default=None, description="Rows per second of event time."
    )
    row_bytes: Annotated[_Number, Field(gt=0)] | None = Field(
        default=None, description="Encoded bytes of a stored row."
    )


class StatisticsDocument(_StatisticsDocument):
    """Statistics given by a user. Omitted statistics are measured, sampled from inputs, or assumed."""

    streams: dict[str, StreamNumbersDocument] = Field(
        default_factory=dict, description="Statistics by stream name."
    )
    filters: dict[str, _Fraction] = Field(
        default_factory=dict,
        description="Fraction of rows that pass a filter. Key: a query's condition on one stream, in CQL.",
    )
    join_selectivity: _Fraction | None = Field(
        default=None, description="Fraction of the pairs of rows that have equal keys."
    )
    batch_s: Annotated[_Number, Field(gt=0)] | None = Field(
        default=None, description="Event time that a micro-batch covers, seconds."
    )

    def to_profile(self, queries: Iterable[Query], streams: Iterable[Stream]) -> Profile:
        """Return the statistics as a profile.

        A filter is bound like a query's condition, so that filters are compared by meaning, not by text.

        Args:
            queries: Queries that are planned; only their filters can be given.
            streams: Registered streams.

        Returns:
            A profile of only the given statistics; the rate of a stream with only a row width is assumed.

        Raises:
            UnknownStatistic: A stream is not registered, or no query has the filter.
            InvalidInput: A filter is not a condition on one stream (``bind.canonical.canonical_filter``). The
                ``path`` of every error starts at the document.
        """
        by_name = {s.name.casefold(): s for s in streams}
        members = tuple(queries)
        return Profile(
            streams=tuple(
                sorted((_stream(n, v, by_name) for n, v in self.streams.items()), key=lambda s: s.stream_id)
            ),
            filters=tuple(
                FilterProfile(*_filter(text, members, by_name), Measure(value))
                for text, value in self.filters.items()
            ),
            families=()
            if self.join_selectivity is None
            else tuple(FamilyProfile(family, Measure(self.join_selectivity)) for family in families(members)),
            batch_s=Profile().batch_s if self.batch_s is None else Measure(self.batch_s),
        )


def _stream(name: str, numbers: StreamNumbersDocument, by_name: Mapping[str, Stream]) -> StreamProfile:
    stream = by_name.get(name.casefold())
    if stream is None:
        raise UnknownStatistic(
            f'stream "{name}" does not exist',
            hint=nearest_or_known(name, [s.name for s in by_name.values()], "stream"),
            path=("streams", name),
        )
    return StreamProfile(
        stream.id,
        ASSUMED_RATE_PER_S if numbers.rate is None else Measure(numbers.rate),
        None if numbers.row_bytes is None else Measure(numbers.row_bytes),
    )


def _filter(text: str, queries: tuple[Query, ...], by_name: Mapping[str, Stream]) -> tuple[int, str]:
    """Return the stream and the canonical predicate of a condition."""
    path = ("filters", text)
    known = {
        (s.stream_id, s.filter): s.stream for q in queries for s in stream_sides(q) if s.filter is not None
    }
    try:
        found = canonical_filter(text, {s.name: s for s in by_name.values()})
    except InvalidInput as error:
        error.path = path
        raise
    if found not in known:
        written = [predicate_text(sql or "", stream) for (_, sql), stream in known.items()]
        raise UnknownStatistic(
            f'no query has the filter "{text}"',
            detail="All conditions of a query on one stream together are one filter.",
            hint=nearest_or_known(text, written, "filter"),
            path=path,
        )
    return found


def _by_stream(value: Any) -> Any:
    """Apply a single list to both streams (``Any``: pydantic validates the value later)."""
    return {_BOTH: value} if isinstance(value, list) else value


class ChainDocument(_StatisticsDocument):
    """Boundaries of a chain to be costed in addition to the strategies."""

    family: str | None = Field(
        default=None,
        description="Key or id of the family, such as `A.k = B.k`; needed where there are several.",
    )
    boundaries_s: Annotated[
        dict[str, list[_Boundary]],
        BeforeValidator(_by_stream, json_schema_input_type=list[_Boundary] | dict[str, list[_Boundary]]),
    ] = Field(
        description="Ends of the slices, seconds, ascending. The last end is the largest window, or null if "
        "that window is unbounded. One list for both streams, or one list per stream, by name (`a` and "
        "`b` in a self-join)."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        """Accept ``{"A": [...], "B": [...]}`` as ``boundaries_s`` (``Any``: nothing is checked yet)."""
        if not isinstance(value, dict) or "boundaries_s" in value:
            return value
        named = {key: item for key, item in value.items() if key != "family"}
        if not named or not all(isinstance(item, list) for item in named.values()):
            return value
        return {key: item for key, item in value.items() if key == "family"} | {"boundaries_s": named}

    def to_chains(self, queries: Iterable[Query]) -> GivenChains:
        """Return the boundaries of the document's family, µs.

        Args:
            queries: Queries that are planned.

        Raises:
            UnknownFamily: No family of the queries has that name.
            InvalidChain: There are several families and none is named, or a stream does not belong to the
                family.
        """
        members = tuple(queries)
        family = self._family(members)
        query = families(members)[family][0]
        self_join = query.a.stream_id == query.b.stream_id
        names: dict[SideName, str] = {"a": "a", "b": "b"}
        if not self_join:
            names = {"a": query.a.stream, "b": query.b.stream}
        given = {name.casefold(): ends for name, ends in self.boundaries_s.items()}
        for name in self.boundaries_s:
            if name != _BOTH and name.casefold() not in {n.casefold() for n in names.values()}:
                raise InvalidChain(
                    f'"{name}" is not a side of the family',
                    hint=nearest_or_known(name, names.values(), "side"),
                )
        chains: dict[SideName, tuple[int, ...]] = {}
        for side, name in names.items():
            ends = given.get(name.casefold(), given.get(_BOTH))
            if ends is None:
                raise InvalidChain(
                    f'the chain of "{name}" is missing',
                    hint=f"Give boundaries of {names['a']} and of {names['b']}, or one list for both.",
                )
            chains[side] = tuple(UNBOUNDED_US if end is None else round(end * 1e6) for end in ends)
        return {family: chains}

    def _family(self, queries: tuple[Query, ...]) -> str:
        if self.family is not None:
            try:
                return family_named(self.family, queries)
            except InvalidInput as error:
                error.path = ("family",)
                raise
        titles = family_titles(queries)
        if len(titles) != 1:
            raise InvalidChain(
                f"the chain does not say which of {len(titles)} families it is for"
                if titles
                else "no family has a chain to change",
                hint=f"Add family with one of: {', '.join(titles.values())}." if titles else "Add a query.",
                path=("family",),
            )
        return next(iter(titles))


def read_statistics_file(path: Path) -> tuple[StatisticsDocument, YamlDocument]:
    """Read statistics from a YAML or JSON file.

    Args:
        path: The file; it has the form of ``statistics`` in the body of a preview request.

    Returns:
        The statistics, and the parsed file for errors that are found later.

    Raises:
        InvalidYaml: The file is missing or not YAML.
        InvalidStatistics: The file contains something invalid.
    """
    document = read_yaml(path)
    try:
        model = StatisticsDocument.model_validate(document.value)
    except ValidationError as error:
        raise first_mistake(error, document, InvalidStatistics, _known_names) from error
    return model, document


def _known_names(path: ItemPath) -> list[str]:
    model: type[BaseModel] = StreamNumbersDocument if path[:1] == ("streams",) else StatisticsDocument
    return list(model.model_fields)
