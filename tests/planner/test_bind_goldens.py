"""CQL in, bound query or whole error out. ``make golden`` or ``REWRITE=1`` rewrites the answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalog.errors import InvalidInput
from catalog.steps import is_exchanged
from catalog.values.query import UNBOUNDED_US, Query, Side
from planner import errors
from planner.bind.bind import bind
from tests.planner.cql_streams import STREAMS
from tests.planner.goldens import check_golden

GOLDENS = sorted((Path(__file__).parent / "golden" / "bind").glob("*.txt"))


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_cql_binds_as_the_golden_file_says(path: Path, rewrite_goldens: bool) -> None:
    check_golden(path, answer, rewrite=rewrite_goldens or os.environ.get("REWRITE") == "1")


def test_every_error_of_the_binder_has_a_golden() -> None:
    # These are of what is planned or rewritten, not of what is bound.
    planned = (
        errors.UnknownStrategy,
        errors.InvalidProbe,
        errors.InvalidChain,
        errors.UnknownBoundary,
        errors.NoSharedChain,
        errors.NotRewritable,
        errors.UnknownFamily,
        errors.UnknownStatistic,
    )
    elsewhere = (InvalidInput, *planned)
    leaves = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, InvalidInput)]
    shown = "\n".join(path.read_text(encoding="utf-8") for path in GOLDENS)
    assert [e.code for e in leaves if e not in elsewhere and f"\n{e.code} " not in shown] == []


def answer(question: list[str]) -> str:
    try:
        return shown(bind("\n".join(question), STREAMS))
    except InvalidInput as error:
        return f"{error.code} {error}"


def shown(query: Query) -> str:
    before = [shown(joined) for joined in (query.left, query.right) if joined is not None]
    lines = [line for each in before for line in (each, "then")]
    lines += [_side("a", query.a), _side("b", query.b)]
    lines += [
        f"key a.{a} = b.{b} as {type_}" for (a, b), type_ in zip(query.key, query.key_types, strict=True)
    ]
    if query.kind != "inner":
        lines.append(f"{query.kind} join, judging rows of {' and '.join(query.preserved)}")
    if query.residual is not None:
        lines.append(f"residual {query.residual}")
    lines += [f"output {output.name} {output.type}: {output.sql}" for output in query.outputs]
    return "\n".join(lines)


def _side(name: str, side: Side) -> str:
    unit = "us" if side.clock == "time" else side.clock
    window = "unbounded" if side.window_us == UNBOUNDED_US else f"{side.window_us} {unit}"
    kept = f"  keep {side.filter} ({' '.join(side.filter_columns)})" if side.filter is not None else ""
    exchanged = " exchanged" if is_exchanged(side.stream_id) else ""
    return f"{name} {side.stream}{exchanged} {side.alias} [{window}] columns ({' '.join(side.columns)}){kept}"
