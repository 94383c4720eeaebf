"""The workload file: streams, queries, and plan changes at batch boundaries (design: The command line).

Every error names file, line and column. ``load_workload`` checks the file itself; ``bind_workload`` checks
what the queries say about the streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catalog.errors import InvalidInput, SluiceError
from catalog.values.plan import Strategy
from catalog.values.query import Backfill, Query
from catalog.values.stream import FilesSource, Stream
from service.inputs.validate import resolve_source, validate_source
from service.stream_document import (
    FilesDocument,
    GeneratedColumnDocument,
    GeneratorDocument,
    HttpDocument,
    StreamDocument,
    check_name,
    did_you_mean,
)
from service.yaml_document import ItemPath, YamlDocument, read_yaml

#: Strategies that this version plans; the others are named in the error.
PLANNED_STRATEGIES: tuple[Strategy, ...] = ("mem-opt",)


class InvalidWorkload(InvalidInput):
    """A workload file says something that cannot be meant."""

    code = "invalid-workload"


class WorkloadNotSupported(InvalidInput):
    """A workload file asks for something that this version does not do yet."""

    code = "workload-not-supported"


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """A query as the file has it.

    Attributes:
        name: Query name.
        cql: Its text.
        backfill: Whether held rows take part.
        path: Where it stands in the document.
        line: Line of the file.
    """

    name: str
    cql: str
    backfill: Backfill
    path: ItemPath
    line: int


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """A plan change that is in force when batch ``at_batch`` is processed.

    Attributes:
        at_batch: Batch number, from 0.
        action: What changes.
        name: Query that comes or goes.
        query: The query that comes; None when one goes.
        path: Where it stands in the document.
    """

    at_batch: int
    action: Literal["add", "remove"]
    name: str
    query: WorkloadQuery | None
    path: ItemPath


@dataclass(frozen=True, slots=True)
class Workload:
    """A checked workload file.

    Attributes:
        file: The file.
        document: Its text and positions, for errors found later.
        streams: Streams in file order; ids are 0, paths absolute.
        queries: Queries in force from batch 0.
        strategy: Objective of the planner.
        script: Plan changes by batch, in file order within a batch.
    """

    file: Path
    document: YamlDocument
    streams: tuple[Stream, ...]
    queries: tuple[WorkloadQuery, ...]
    strategy: Strategy
    script: tuple[ScriptStep, ...]

    @contextmanager
    def locating(self, path: ItemPath, *, text_at: ItemPath | None = None) -> Iterator[None]:
        """Give every `InvalidInput` raised inside a place in this file.

        Args:
            path: Item of the document that is being looked at.
            text_at: Scalar that the error's own location refers to.
        """
        with _locating(self.document, path, text_at=text_at):
            yield


def load_workload(path: Path) -> Workload:
    """Read and check a workload file; relative paths in it start at its own directory.

    Raises:
        InvalidYaml: The file is missing or not YAML.
        InvalidWorkload: A key is missing, unknown or of another type; a name is taken twice; a script removes
            what is not there.
        WorkloadNotSupported: Another strategy, or a script that updates or migrates.
    """
    document = read_yaml(path)
    try:
        model = _WorkloadDocument.model_validate(document.value)
    except ValidationError as error:
        raise _from_pydantic(error, document) from error
    if model.strategy not in PLANNED_STRATEGIES:
        raise WorkloadNotSupported(
            f'strategy "{model.strategy}" is not supported yet',
            hint=f"Write strategy: {PLANNED_STRATEGIES[0]}.",
            location=document.location(("strategy",)),
        )
    streams = _streams(model, document, path.absolute().parent)
    queries = tuple(_query(q, document, ("queries", i)) for i, q in enumerate(model.queries))
    script = _script(model, document)
    _check_names(queries, script, document)
    return Workload(path, document, streams, queries, model.strategy, script)


def check_sources(workload: Workload) -> None:
    """Refuse a workload whose sources cannot be read.

    Raises:
        InvalidInput: A path does not exist, or a generator does not fit its stream.
    """
    for i, stream in enumerate(workload.streams):
        with workload.locating(("streams", i)):
            validate_source(stream)


def bind_workload(workload: Workload) -> tuple[tuple[Stream, ...], dict[ItemPath, Query]]:
    """Bind every query of a workload against its streams, without a catalog.

    Args:
        workload: What `load_workload` returned.

    Returns:
        The streams with ids 1, 2, ..., and the bound queries by the path of their entry in the document,
        numbered from 1 in the order in which they enter.

    Raises:
        InvalidInput: A query cannot be bound; the location is in the file.
    """
    from planner.bind import bind  # loading sqlglot takes 0.2 s, which only those pay who bind

    streams = tuple(replace(stream, id=i) for i, stream in enumerate(workload.streams, start=1))
    by_name = {stream.name: stream for stream in streams}
    bound: dict[ItemPath, Query] = {}
    added = [step.query for step in workload.script if step.query is not None]
    for number, query in enumerate([*workload.queries, *added], start=1):
        with workload.locating(query.path, text_at=(*query.path, "cql")):
            bound[query.path] = replace(
                bind(query.cql, by_name, name=query.name, query_id=number), backfill=query.backfill
            )
    return streams, bound


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _QueryDocument(_Model):
    name: str
    cql: str = Field(min_length=1)
    backfill: Backfill = "none"


class _StepDocument(_Model):
    at_batch: int = Field(ge=0)
    add: _QueryDocument | None = None
    remove: str | None = None
    update: Any = None  # accepted to say "not yet" instead of "unknown key"
    migrate: Any = None


class _WorkloadDocument(_Model):
    streams: list[StreamDocument] = Field(min_length=1)
    queries: list[_QueryDocument] = Field(default_factory=list)
    strategy: Strategy = "mem-opt"
    script: list[_StepDocument] = Field(default_factory=list)


#: Model of an item by its key in the document, or by its type tag in the location that pydantic gives.
_MODELS: dict[str, type[BaseModel]] = {
    "streams": StreamDocument,
    "queries": _QueryDocument,
    "script": _StepDocument,
    "add": _QueryDocument,
    "files": FilesDocument,
    "http": HttpDocument,
    "generator": GeneratorDocument,
}

#: What pydantic's type errors mean to somebody who writes YAML.
_EXPECTED = {
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
}


def _streams(model: _WorkloadDocument, document: YamlDocument, base: Path) -> tuple[Stream, ...]:
    streams: list[Stream] = []
    seen: set[str] = set()
    for i, item in enumerate(model.streams):
        with _locating(document, ("streams", i)):
            stream = item.to_stream()
        if stream.name.lower() in seen:
            raise InvalidWorkload(
                f'stream "{stream.name}" is declared twice',
                detail="Stream names do not depend on case.",
                location=document.location(("streams", i, "name")),
            )
        seen.add(stream.name.lower())
        if isinstance(stream.source, FilesSource):  # a generator's start is the moment of its registration
            stream = resolve_source(stream, base=base, now_us=0)
        streams.append(stream)
    return tuple(streams)


def _query(item: _QueryDocument, document: YamlDocument, path: ItemPath) -> WorkloadQuery:
    with _locating(document, path):
        check_name("query", item.name, ("name",))
    return WorkloadQuery(item.name, item.cql, item.backfill, path, document.location(path).line)


def _script(model: _WorkloadDocument, document: YamlDocument) -> tuple[ScriptStep, ...]:
    steps: list[ScriptStep] = []
    for i, item in enumerate(model.script):
        path: ItemPath = ("script", i)
        given = [name for name in ("add", "remove", "update", "migrate") if name in item.model_fields_set]
        if len(given) != 1:
            raise InvalidWorkload(
                "a script step needs exactly one of add and remove",
                detail=f"Given: {', '.join(given) or 'none'}.",
                location=document.location(path),
            )
        if given[0] in ("update", "migrate"):
            raise WorkloadNotSupported(
                f"script step {given[0]} is not supported yet",
                hint="Write add and remove steps.",
                location=document.location((*path, given[0]), key=True),
            )
        if item.add is not None:
            query = _query(item.add, document, (*path, "add"))
            steps.append(ScriptStep(item.at_batch, "add", query.name, query, path))
        elif item.remove is not None:
            steps.append(ScriptStep(item.at_batch, "remove", item.remove, None, path))
        else:
            raise InvalidWorkload(
                f"script step {given[0]} says nothing",
                location=document.location((*path, given[0]), key=True),
            )
    return tuple(sorted(steps, key=lambda step: step.at_batch))


def _check_names(
    queries: tuple[WorkloadQuery, ...], script: tuple[ScriptStep, ...], document: YamlDocument
) -> None:
    """Follow the script: a name is free when its query comes, and there when it goes."""
    running: set[str] = set()

    def enter(query: WorkloadQuery) -> None:
        location = document.location((*query.path, "name"))
        if query.name in running:
            raise InvalidWorkload(f'query "{query.name}" is declared twice', location=location)
        running.add(query.name)

    for query in queries:
        enter(query)
    for step in script:
        if step.query is not None:
            enter(step.query)
        elif step.name not in running:
            raise InvalidWorkload(
                f'query "{step.name}" is not running at batch {step.at_batch}',
                hint=did_you_mean(step.name, sorted(running)),
                location=document.location((*step.path, "remove")),
            )
        else:
            running.discard(step.name)


@contextmanager
def _locating(document: YamlDocument, path: ItemPath, *, text_at: ItemPath | None = None) -> Iterator[None]:
    """Give errors raised inside a place in the document; the class of the error stays what it is."""
    try:
        yield
    except InvalidInput as error:
        if error.location is not None and error.location.file is None and text_at is not None:
            error.location = document.inside_scalar(text_at, error.location)
        elif error.location is None:
            error.location = document.location((*path, *error.path))
        raise


def _from_pydantic(error: ValidationError, document: YamlDocument) -> SluiceError:
    """Say the first mistake in our words."""
    first = error.errors()[0]
    path: ItemPath = tuple(first["loc"])
    last = str(path[-1]) if path else ""
    kind = first["type"]
    if kind == "missing":
        return InvalidWorkload(f'key "{last}" is missing', location=document.location(path[:-1]))
    if kind == "extra_forbidden":
        return InvalidWorkload(
            f'key "{last}" is not known here',
            hint=did_you_mean(last, _known_keys(path)),
            location=document.location(path, key=True),
        )
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _source_type_error(path, first.get("ctx", {}), document)
    location = document.location(path)
    where = f"{last}: " if isinstance(path[-1] if path else 0, str) else ""
    if kind in _EXPECTED:
        return InvalidWorkload(f"{where}expected {_EXPECTED[kind]}", location=location)
    if kind == "literal_error":
        known = [word.strip(" '") for word in first["ctx"]["expected"].replace(" or ", ",").split(",")]
        return InvalidWorkload(
            f'{where}"{first["input"]}" is not known',
            detail=f"Known: {', '.join(known)}.",
            hint=did_you_mean(str(first["input"]), known),
            location=location,
        )
    message = first["msg"][:1].lower() + first["msg"][1:]
    return InvalidWorkload(f"{where}{message}", location=location)


def _source_type_error(path: ItemPath, context: dict[str, Any], document: YamlDocument) -> InvalidWorkload:
    known = ["files", "http", "generator"]
    tag = context.get("tag")
    if tag is None:
        return InvalidWorkload(
            'key "type" is missing',
            hint=f"Write one of {', '.join(known)}.",
            location=document.location(path),
        )
    return InvalidWorkload(
        f'source type "{tag}" is not known',
        hint=did_you_mean(str(tag), known),
        location=document.location((*path, "type")),
    )


def _known_keys(path: ItemPath) -> list[str]:
    """Return the keys allowed beside the last one of ``path``."""
    model: type[BaseModel] = _WorkloadDocument
    for item in path[:-1]:
        if model is GeneratorDocument and item == "columns":
            model = GeneratedColumnDocument
        elif isinstance(item, str):
            model = _MODELS.get(item, model)
    return [name for name in model.model_fields if name not in ("update", "migrate")]
