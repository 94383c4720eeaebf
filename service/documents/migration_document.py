"""Documents of migrations: the body of ``POST /migrations``, and ``migrate:`` in a workload's script.

{"strategy": "cpu-opt", "family_strategies": {"A.k = B.k": "mem-opt"}, "on_leave": {"after": "10m"}}
{"splits": [{"at": "15s", "side": "A"}], "merges": [{"at": "10s", "family": "A.k = B.k"}]}
{"cleanup": true}          {"rollback_to": 7}
{"probe": "hash(100)", "invalidation": "probe+insert"}
{"family_punctuations": {"A.k = B.k": {"purge": "lazy(100)", "propagate": "pull"}}}
{"oblivious_memory": "dbf"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from catalog.errors import SluiceError, error_path
from catalog.times.durations import format_duration, parse_duration_us
from catalog.values.migration import ExplicitStep, OnLeave
from catalog.values.plan import Strategy
from catalog.values.policies.memory import AskedMemory
from catalog.values.policies.probe import AskedProbe, Invalidation
from catalog.values.policies.punctuation_policy import Propagate, PunctuationPolicy
from planner.probes.asked_probe import asked_probe, probe_text
from service.errors import InvalidMigration

#: A count of closings must have fewer digits than this.
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """Requested migration: one kind of change, a new ``on_leave``, or both.

    Attributes:
        strategy: Strategy of families that have none of their own; None leaves it unchanged.
        family_strategies: Strategies of single families by key or id; None removes a family's own strategy.
        probe: Way to search the slices of families that have no way of their own; None leaves it unchanged.
        family_probes: Ways to search the slices of single families; None removes a family's own way.
        family_punctuations: Policies of single families for acting on closed keys; None removes a family's
            own policy.
        oblivious_memory: Place where rows of joins without windows wait; None leaves it unchanged.
        steps: Splits and merges, each with the name of its family, or with None if there is only one family.
        cleanup: Whether to drop pinned boundaries, and boundaries left by departed queries.
        rollback_to: Plan version whose strategies and chains are restored.
        on_leave: New policy for the slices of departed queries; None leaves it unchanged.
        written: The request as the client wrote it, for the record of the migration.
    """

    strategy: Strategy | None = None
    family_strategies: Mapping[str, Strategy | None] = field(default_factory=dict)
    probe: AskedProbe | None = None
    family_probes: Mapping[str, AskedProbe | None] = field(default_factory=dict)
    family_punctuations: Mapping[str, PunctuationPolicy | None] = field(default_factory=dict)
    oblivious_memory: AskedMemory | None = None
    steps: tuple[tuple[str | None, ExplicitStep], ...] = ()
    cleanup: bool = False
    rollback_to: int | None = None
    on_leave: OnLeave | None = None
    written: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        said = {
            "strategies": self.strategy is not None or bool(self.family_strategies),
            "probes": self.probe is not None or bool(self.family_probes),
            "punctuations": bool(self.family_punctuations),
            "oblivious_memory": self.oblivious_memory is not None,
            "splits and merges": bool(self.steps),
            "cleanup": self.cleanup,
            "rollback_to": self.rollback_to is not None,
        }
        given = [name for name, is_said in said.items() if is_said]
        if len(given) > 1:
            raise InvalidMigration(
                f"a migration cannot be about {given[0]} and {given[1]}",
                detail="Each of these changes starts from the chains in force.",
                hint="Send a migration for each change, one after the other.",
            )
        if not given and self.on_leave is None:
            raise InvalidMigration(
                "the migration asks for nothing",
                hint="Give strategy, family_strategies, probe, family_probes, family_punctuations, "
                "oblivious_memory, splits, merges, cleanup, rollback_to or on_leave.",
            )

    @property
    def cause(self) -> str:
        """The request in words."""
        parts = [] if self.strategy is None else [f"strategy {self.strategy}"]
        parts += [f"{name}: {value or 'no own strategy'}" for name, value in self.family_strategies.items()]
        parts += [] if self.probe is None else [f"probe {probe_text(self.probe)}"]
        parts += [
            f"{name}: {'no own probe' if own is None else f'probe {probe_text(own)}'}"
            for name, own in self.family_probes.items()
        ]
        parts += [
            f"{name}: {'no own punctuations' if own is None else f'purge {own.purge_text}, '}"
            f"{'' if own is None else f'propagate {own.propagate_text}'}"
            for name, own in self.family_punctuations.items()
        ]
        parts += [] if self.oblivious_memory is None else [f"oblivious memory {self.oblivious_memory}"]
        parts += [f"{step.kind} at {format_duration(step.at_us)}" for _, step in self.steps]
        if self.on_leave is not None:
            after = f" {format_duration(self.on_leave.after_us)}" if self.on_leave.after_us else ""
            parts.append(f"on leave {self.on_leave.policy}{after}")
        if self.cleanup:
            return "; ".join(["cleanup", *parts])
        if self.rollback_to is not None:
            return "; ".join([f"rollback to {self.rollback_to}", *parts])
        return f"migrate: {'; '.join(parts)}"


class SliceStepDocument(BaseModel):
    """A place in a chain, named by the boundary at which slices meet."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"family": "flights.origin = weather.origin", "at": "15s"}]},
    )

    family: str | None = Field(
        default=None, description="Key or id of the family; needed where there are several."
    )
    side: str | None = Field(
        default=None,
        description="Stream whose chain is changed (`a` or `b` in a self-join); both if it is left out.",
    )
    at: str | int | float = Field(description="Distance behind the other stream, such as `15s` or `1.5 min`.")


class ProbeDocument(BaseModel):
    """Way to search the slices of one family."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"probe": "hash(100)", "invalidation": "probe+insert"}]},
    )

    probe: str = Field(description="`auto`, `merge`, `loops` or `hash(N)`.")
    invalidation: Invalidation | None = Field(
        default=None,
        description="Rings from which expired rows are removed when a row arrives; `probe` by default.",
    )


class PunctuationsPolicyDocument(BaseModel):
    """When one family acts on closed keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"purge": "lazy(100)", "propagate": "every(10s)"}]},
    )

    purge: str = Field(
        default="auto",
        description="When rows of closed keys are removed from the state: with each closing (`eager`), after "
        "n closings in a bucket (`lazy(n)`), or after enough closings to make removal worthwhile (`auto`).",
    )
    propagate: str = Field(
        default="push",
        description="When result punctuations are emitted: as soon as keys are finished (`push`), at an "
        "interval of event time (`every(10s)`), after n closings in a bucket (`every(100)`), once both "
        "streams have closed a key (`matched`), or on request (`pull`).",
    )

    def to_policy(self) -> PunctuationPolicy:
        """Return the policy.

        Raises:
            InvalidMigration: A policy does not exist; the error's ``path`` names it.
        """
        purge_after = {"auto": None, "eager": 1}.get(self.purge, 0)
        if purge_after == 0:
            purge_after = _count(_argument(self.purge, "lazy"))
            if purge_after is None:
                raise InvalidMigration(
                    f'purge policy "{self.purge}" does not exist',
                    hint="Write auto, eager, or lazy(n) with a whole number from 1 on.",
                    path=("purge",),
                )
        if self.propagate in ("push", "matched", "pull"):
            return PunctuationPolicy(purge_after, cast("Propagate", self.propagate))
        every = _argument(self.propagate, "every")
        if every is None or not every.strip("0"):
            raise InvalidMigration(
                f'propagation policy "{self.propagate}" does not exist',
                hint="Write push, pull, matched, every(n) with a whole number from 1 on, or every(10s).",
                path=("propagate",),
            )
        closings = _count(every)
        every_us = _at_us(every, ("propagate",)) if closings is None else None
        return PunctuationPolicy(purge_after, "push", every_us, closings)


def _argument(text: str, name: str) -> str | None:
    """Return the argument in brackets after a name, or None if the text has another form."""
    begins = text.startswith(f"{name}(") and text.endswith(")")
    return text[len(name) + 1 : -1].strip() if begins else None


def _count(text: str | None) -> int | None:
    """Return the positive whole number in a text, or None if the text is not such a number."""
    whole = text is not None and text.isascii() and text.isdecimal() and len(text) < _DIGITS
    return int(text) or None if whole and text is not None else None


def _leave_policy(value: Any) -> Any:
    """Validate a policy without pydantic, since its errors for unions name models (Any: not validated)."""
    if value in ("auto", "manual"):
        return value
    if (
        isinstance(value, dict)
        and value.keys() == {"after"}
        and isinstance(value["after"], str | int | float)
    ):
        return value
    raise ValueError('expected "auto", "manual" or {"after": "10m"}')


_LEAVE_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": ["auto", "manual"]},
        {
            "type": "object",
            "properties": {"after": {"type": ["string", "number"]}},
            "required": ["after"],
            "additionalProperties": False,
        },
    ]
}


class MigrationDocument(BaseModel):
    """Requested migration as a document."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"strategy": "cpu-opt"}, {"splits": [{"at": "15s"}]}]},
    )

    strategy: Strategy | None = Field(
        default=None, description="Strategy of families that have none of their own."
    )
    family_strategies: dict[str, Strategy | None] = Field(
        default_factory=dict,
        description="Strategies of single families, by key (`A.k = B.k`) or id; null removes a family's "
        "own strategy.",
    )
    probe: str | None = Field(
        default=None,
        description="How slices are searched in families without a setting of their own: `auto`, `merge`, "
        "`loops` or `hash(N)`.",
    )
    invalidation: Invalidation | None = Field(
        default=None,
        description="With `probe`: rings from which expired rows are removed when a row arrives; `probe` by "
        "default.",
    )
    family_probes: dict[str, ProbeDocument | None] = Field(
        default_factory=dict,
        description="How the slices of single families are searched, by key or id; null removes a family's "
        "setting.",
    )
    family_punctuations: dict[str, PunctuationsPolicyDocument | None] = Field(
        default_factory=dict,
        description="When single families act on the keys that their streams have closed, by key or id; null "
        "removes a family's own policy.",
    )
    oblivious_memory: AskedMemory | None = Field(
        default=None,
        description="Where rows of joins without windows wait. `plain`: rows do not wait, but are joined "
        "on arrival. `msf`: in memory, until no earlier row can arrive. `dbf`: on disk, while their stream "
        "is ahead of the other stream. `hybrid`: in memory and on disk. `auto`: the planner chooses, within "
        "the setting `oblivious_memory_mb`.",
    )
    splits: list[SliceStepDocument] = Field(
        default_factory=list,
        description="Boundaries at which a slice is split in two. A split pins the chain.",
    )
    merges: list[SliceStepDocument] = Field(
        default_factory=list,
        description="Boundaries at which two slices are merged. Merges are done before splits.",
    )
    cleanup: bool = Field(
        default=False,
        description="Drop pinned boundaries, and boundaries that departed queries left.",
    )
    rollback_to: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Plan version whose strategies and chains are restored for the present queries.",
    )
    on_leave: Annotated[Any, PlainValidator(_leave_policy), WithJsonSchema(_LEAVE_SCHEMA)] | None = Field(
        default=None,
        description="When chains drop the boundaries that departed queries left: in the version in which "
        "the query leaves (`auto`), at a clean-up (`manual`), or after a time (`{after: 10m}`).",
    )

    def to_request(self) -> MigrationRequest:
        """Return the migration request that the document describes.

        Raises:
            InvalidDuration: A text is not a length of time; the error's ``path`` names it.
            InvalidMigration: The document requests no change, or two kinds of changes.
            InvalidProbe: A way to search slices does not exist.
        """
        lists: tuple[tuple[Literal["merge", "split"], str, list[SliceStepDocument]], ...] = (
            ("merge", "merges", self.merges),
            ("split", "splits", self.splits),
        )
        steps = tuple(
            (step.family, ExplicitStep(kind, _at_us(step.at, (name, i, "at")), step.side, (name, i)))
            for kind, name, places in lists
            for i, step in enumerate(places)
        )
        return MigrationRequest(
            strategy=self.strategy,
            family_strategies=self.family_strategies,
            probe=self._probe(),
            family_probes={name: _asked(name, own) for name, own in self.family_probes.items()},
            family_punctuations={name: _policy(name, own) for name, own in self.family_punctuations.items()},
            oblivious_memory=self.oblivious_memory,
            steps=steps,
            cleanup=self.cleanup,
            rollback_to=self.rollback_to,
            on_leave=self._on_leave(),
            written=self.model_dump(mode="json", exclude_unset=True, exclude={"dry_run"}),
        )

    def _probe(self) -> AskedProbe | None:
        if self.probe is None and self.invalidation is None:
            return None
        if self.probe is None:
            raise InvalidMigration(
                "an invalidation needs a probe",
                hint="Add probe: loops, or probe: hash(N).",
                path=("invalidation",),
            )
        return asked_probe(self.probe, self.invalidation)

    def _on_leave(self) -> OnLeave | None:
        if self.on_leave is None:
            return None
        if self.on_leave in ("auto", "manual"):
            return OnLeave("auto" if self.on_leave == "auto" else "manual")
        return OnLeave("after", _at_us(self.on_leave["after"], ("on_leave", "after")))


def _asked(name: str, own: ProbeDocument | None) -> AskedProbe | None:
    if own is None:
        return None
    with error_path("family_probes", name):
        return asked_probe(own.probe, own.invalidation)


def _policy(name: str, own: PunctuationsPolicyDocument | None) -> PunctuationPolicy | None:
    if own is None:
        return None
    with error_path("family_punctuations", name):
        return own.to_policy()


def _at_us(text: str | int | float, path: tuple[str | int, ...]) -> int:
    """Read a length of time; sums are allowed, since a plan shows inclusive bounds as ``10s+1us``."""
    try:
        return sum(parse_duration_us(part) for part in str(text).split("+"))
    except SluiceError as error:
        error.path = path
        raise
