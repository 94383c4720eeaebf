"""The workload file: streams, queries, strategies, and plan changes at batch boundaries.

Every error names file, line and column. ``load_workload`` checks the file alone; ``bind_workload`` checks the
queries against the streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from catalog.values.change import (
    AddQuery,
    Change,
    PauseQuery,
    RemoveQuery,
    ResumeQuery,
    UpdateQuery,
)
from catalog.values.plan import Partitioning, Strategy
from catalog.values.policies.memory import AskedMemory
from catalog.values.policies.probe import AskedProbe, Invalidation
from catalog.values.query import Backfill, Query
from catalog.values.stream import FilesSource, Stream
from catalog.wording.wording import nearest_or_known
from planner.probes.asked_probe import asked_probe
from service.documents.migration_document import (
    MigrationDocument,
    MigrationRequest,
    SliceStepDocument,
)
from service.documents.streams.stream_document import (
    SOURCE_TYPES,
    FilesDocument,
    GeneratedColumnDocument,
    GeneratorDocument,
    HttpDocument,
    KafkaDocument,
    StreamDocument,
    check_name,
)
from service.documents.yaml_files.document_errors import first_mistake
from service.documents.yaml_files.yaml_document import ItemPath, YamlDocument, locating, read_yaml
from service.errors import InvalidWorkload
from service.inputs.checks.validate import resolve_source, validate_source

Action = Literal["add", "update", "remove", "pause", "resume", "migrate"]

#: Actions of script steps; a step has exactly one.
_ACTIONS: tuple[Action, ...] = ("add", "update", "remove", "pause", "resume", "migrate")


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """A query as written in the file.

    Attributes:
        name: Query name.
        cql: Text of the query.
        backfill: ``state`` to join rows that are in the state already, ``none`` to join only new rows.
        path: Path of the query in the document.
        line: Line of the query in the file.
    """

    name: str
    cql: str
    backfill: Backfill
    path: ItemPath
    line: int


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """A plan change that takes effect with batch ``at_batch``.

    Attributes:
        at_batch: Batch number, from 0.
        action: Kind of the change.
        name: Name of the query that changes; empty for a migration.
        query: The query that is added, or a query with its new text, or None for other actions.
        path: Path of the step in the document.
        migration: The migration, or None for a change of a query.
    """

    at_batch: int
    action: Action
    name: str
    query: WorkloadQuery | None
    path: ItemPath
    migration: MigrationRequest | None = None

    def to_change(self) -> Change | None:
        """Return the step as a change of queries, or None for a migration."""
        match self.action:
            case "add" | "update" if self.query is not None:
                kind = AddQuery if self.action == "add" else UpdateQuery
                return kind(self.query.name, self.query.cql, self.query.backfill)
            case "remove":
                return RemoveQuery(self.name)
            case "pause":
                return PauseQuery(self.name)
            case "resume":
                return ResumeQuery(self.name)
        return None


@dataclass(frozen=True, slots=True)
class Workload:
    """A checked workload file.

    Attributes:
        file: The file.
        document: The file's text and the positions in it, for errors that are found later.
        streams: Streams in file order; ids are 0, paths absolute.
        queries: Queries in force from batch 0.
        strategy: Strategy of families that have none of their own; None uses the settings.
        script: Plan changes by batch, in file order within a batch.
        family_strategies: Strategies of single families, by key (``A.k = B.k``) or id.
        partitioning: Spread of a key's rows over buckets; None uses the settings.
        probe: Way to search slices; None uses the settings.
        oblivious_memory: Place where rows of joins without windows wait; None uses the settings.
        oblivious_memory_mb: Memory limit within which ``auto`` chooses, MB; None uses the settings.
    """

    file: Path
    document: YamlDocument
    streams: tuple[Stream, ...]
    queries: tuple[WorkloadQuery, ...]
    strategy: Strategy | None
    script: tuple[ScriptStep, ...]
    family_strategies: Mapping[str, Strategy] = field(default_factory=dict)
    partitioning: Partitioning | None = None
    probe: AskedProbe | None = None
    oblivious_memory: AskedMemory | None = None
    oblivious_memory_mb: float | None = None

    @contextmanager
    def locating(self, path: ItemPath, *, text_at: ItemPath | None = None) -> Iterator[None]:
        """Add the location in this file to every `InvalidInput` raised in the block.

        Args:
            path: Item of the document that is being checked.
            text_at: Path of the value in whose text the error's own location lies.
        """
        with locating(self.document, path, text_at=text_at):
            yield


def load_workload(path: Path) -> Workload:
    """Read and check a workload file; relative paths in it start at its own directory.

    Raises:
        InvalidYaml: The file is missing or not YAML.
        InvalidWorkload: A key is missing, unknown or of another type; two streams or two queries have the
            same name; or a script changes a query that does not exist.
    """
    document = read_yaml(path)
    try:
        model = _WorkloadDocument.model_validate(document.value)
    except ValidationError as error:
        raise first_mistake(error, document, InvalidWorkload, _known_names) from error
    streams = _streams(model, document, path.absolute().parent)
    queries = tuple(_query(q, document, ("queries", i)) for i, q in enumerate(model.queries))
    script = _script(model, document)
    _check_names(queries, script, document)
    return Workload(
        path,
        document,
        streams,
        queries,
        model.strategy,
        script,
        model.family_strategies,
        model.partitioning,
        _probe(model, document),
        model.oblivious_memory,
        model.oblivious_memory_mb,
    )


def _probe(model: _WorkloadDocument, document: YamlDocument) -> AskedProbe | None:
    if model.probe is None and model.invalidation is None:
        return None
    with locating(document, ("invalidation",) if model.probe is None else ("probe",)):
        return asked_probe("auto" if model.probe is None else model.probe, model.invalidation)


def check_sources(workload: Workload) -> None:
    """Refuse a workload whose sources cannot be read.

    Raises:
        InvalidInput: A path does not exist, or a generator does not fit its stream.
    """
    for i, stream in enumerate(workload.streams):
        with workload.locating(("streams", i)):
            validate_source(stream)


@dataclass(frozen=True, slots=True)
class BoundWorkload:
    """A workload whose queries are bound against its streams.

    Attributes:
        workload: The workload.
        streams: The streams with ids 1, 2, ..., as a fresh catalog numbers them.
        queries: The bound queries by the path of their entry in the document, numbered from 1 in the order
            in which they are added.
    """

    workload: Workload
    streams: tuple[Stream, ...]
    queries: Mapping[ItemPath, Query]


def bind_workload(workload: Workload) -> BoundWorkload:
    """Bind every query of a workload against its streams, without a catalog.

    Args:
        workload: Workload returned by `load_workload`.

    Raises:
        InvalidInput: A query cannot be bound, or a strategy is for a family without queries; the error has
            the location in the file.
    """
    from planner.bind.bind import (  # Imported here, since sqlglot loads in 0.2 s and only binding needs it.
        bind,
        refuse_backfill,
    )
    from planner.build.placement.place_query import QueryPlaces
    from planner.families.texts.family_names import by_family

    streams = tuple(replace(stream, id=i) for i, stream in enumerate(workload.streams, start=1))
    by_name = {stream.name: stream for stream in streams}
    places = QueryPlaces(workload.partitioning or "auto", by_name)
    bound: dict[ItemPath, Query] = {}
    added = [step.query for step in workload.script if step.query is not None]
    for number, query in enumerate([*workload.queries, *added], start=1):
        with workload.locating(query.path, text_at=(*query.path, "cql")):
            found = bind(query.cql, by_name, name=query.name, query_id=number, backfill=query.backfill)
            bound[query.path] = places.placed(found)
        with workload.locating(query.path):
            refuse_backfill(bound[query.path], query.backfill)
    # A strategy may be for a family that gets queries only from the script, so these queries are considered.
    with workload.locating(("family_strategies",)):
        by_family(workload.family_strategies, bound.values())
    for step in workload.script:
        if step.migration is not None:
            with workload.locating((*step.path, "migrate", "family_strategies")):
                by_family(step.migration.family_strategies, bound.values())
            with workload.locating((*step.path, "migrate", "family_probes")):
                by_family(step.migration.family_probes, bound.values())
    return BoundWorkload(workload, streams, bound)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _QueryDocument(_Model):
    name: str
    cql: str = Field(min_length=1)
    backfill: Backfill = "none"


class _UpdateDocument(_Model):
    name: str
    cql: str = Field(min_length=1)
    backfill: Backfill = "state"


class _StepDocument(_Model):
    at_batch: int = Field(ge=0)
    add: _QueryDocument | None = None
    update: _UpdateDocument | None = None
    remove: str | None = None
    pause: str | None = None
    resume: str | None = None
    migrate: MigrationDocument | None = None


class _WorkloadDocument(_Model):
    streams: list[StreamDocument] = Field(min_length=1)
    queries: list[_QueryDocument] = Field(default_factory=list)
    strategy: Strategy | None = None
    family_strategies: dict[str, Strategy] = Field(default_factory=dict)
    partitioning: Partitioning | None = None
    probe: str | None = None
    invalidation: Invalidation | None = None
    oblivious_memory: AskedMemory | None = None
    oblivious_memory_mb: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    script: list[_StepDocument] = Field(default_factory=list)


#: Model of an item by its key in the document, or by its type tag in pydantic's location.
_MODELS: dict[str, type[BaseModel]] = {
    "streams": StreamDocument,
    "queries": _QueryDocument,
    "script": _StepDocument,
    "add": _QueryDocument,
    "update": _UpdateDocument,
    "migrate": MigrationDocument,
    "splits": SliceStepDocument,
    "merges": SliceStepDocument,
    "files": FilesDocument,
    "http": HttpDocument,
    "generator": GeneratorDocument,
    "kafka": KafkaDocument,
}


def _streams(model: _WorkloadDocument, document: YamlDocument, base: Path) -> tuple[Stream, ...]:
    streams: list[Stream] = []
    seen: set[str] = set()
    for i, item in enumerate(model.streams):
        with locating(document, ("streams", i)):
            stream = item.to_stream()
        if stream.name.lower() in seen:
            raise InvalidWorkload(
                f'stream "{stream.name}" is declared twice',
                detail="Stream names do not depend on case.",
                location=document.location(("streams", i, "name")),
            )
        seen.add(stream.name.lower())
        # The start of a generator is set when the stream is registered.
        if isinstance(stream.source, FilesSource):
            stream = resolve_source(stream, base=base, now_us=0)
        streams.append(stream)
    return tuple(streams)


def _query(item: _QueryDocument | _UpdateDocument, document: YamlDocument, path: ItemPath) -> WorkloadQuery:
    with locating(document, path):
        check_name("query", item.name, ("name",))
    return WorkloadQuery(item.name, item.cql, item.backfill, path, document.location(path).line)


def _script(model: _WorkloadDocument, document: YamlDocument) -> tuple[ScriptStep, ...]:
    steps = [_step(item, document, ("script", i)) for i, item in enumerate(model.script)]
    return tuple(sorted(steps, key=lambda step: step.at_batch))


def _step(item: _StepDocument, document: YamlDocument, path: ItemPath) -> ScriptStep:
    given = [name for name in _ACTIONS if name in item.model_fields_set]
    if len(given) != 1:
        raise InvalidWorkload(
            f"a script step needs exactly one of {', '.join(_ACTIONS[:-1])} and {_ACTIONS[-1]}",
            detail=f"Given: {', '.join(given) or 'none'}.",
            location=document.location(path),
        )
    (action,) = given
    text = item.add or item.update
    if text is not None:
        query = _query(text, document, (*path, action))
        return ScriptStep(item.at_batch, action, query.name, query, path)
    name = item.remove or item.pause or item.resume
    if name is not None:
        return ScriptStep(item.at_batch, action, name, None, path)
    if item.migrate is not None and item.migrate.model_fields_set:
        with locating(document, (*path, "migrate")):
            return ScriptStep(item.at_batch, "migrate", "", None, path, item.migrate.to_request())
    raise InvalidWorkload(
        f"script step {given[0]} is empty", location=document.location((*path, given[0]), key=True)
    )


def _check_names(
    queries: tuple[WorkloadQuery, ...], script: tuple[ScriptStep, ...], document: YamlDocument
) -> None:
    """Check the script in order: an added query needs a free name, and a changed query must exist."""
    states: dict[str, str] = {}

    def enter(query: WorkloadQuery) -> None:
        location = document.location((*query.path, "name"))
        if query.name in states:
            raise InvalidWorkload(f'query "{query.name}" is declared twice', location=location)
        states[query.name] = "running"

    for query in queries:
        enter(query)
    for step in script:
        if step.action == "migrate":
            continue
        if step.action == "add" and step.query is not None:
            enter(step.query)
            continue
        wanted = {"pause": ("running",), "resume": ("paused",)}.get(step.action, ("running", "paused"))
        if states.get(step.name) not in wanted:
            named = (step.action, "name") if step.action == "update" else (step.action,)
            raise InvalidWorkload(
                f'query "{step.name}" is not {wanted[0]} at batch {step.at_batch}',
                hint=nearest_or_known(step.name, sorted(n for n, state in states.items() if state in wanted)),
                location=document.location((*step.path, *named)),
            )
        if step.action == "remove":
            del states[step.name]
        elif step.action != "update":
            states[step.name] = "paused" if step.action == "pause" else "running"


def _known_names(path: ItemPath) -> list[str]:
    """Return the keys allowed in place of the last key of ``path``, or the types of sources."""
    if path[-2:] == ("source", "type"):
        return list(SOURCE_TYPES)
    model: type[BaseModel] = _WorkloadDocument
    for item in path[:-1]:
        if model is GeneratorDocument and item == "columns":
            model = GeneratedColumnDocument
        elif isinstance(item, str):
            model = _MODELS.get(item, model)
    return list(model.model_fields)
