from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.values.stream import FilesSource, GeneratedColumn, GeneratorSource, HttpSource
from service.errors import InvalidGenerator, SourceNotFound
from service.inputs.checks.validate import resolve_source, validate_source
from tests.service.inputs.streams import EVERY_TYPE, files_stream, stream_of


def generator_of(*columns: GeneratedColumn, **options) -> GeneratorSource:
    return GeneratorSource(options.pop("rate_per_s", 10.0), columns=columns, **options)


def test_what_exists_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").touch()
    for path in (tmp_path, tmp_path / "x.csv", tmp_path / "*.csv", tmp_path / "*" / "*.csv"):
        validate_source(files_stream(path))
    validate_source(stream_of(HttpSource()))
    validate_source(stream_of(generator_of(GeneratedColumn("K", "zipf"), rows=5)))


def test_a_path_that_does_not_exist_names_the_nearest_that_does(tmp_path: Path) -> None:
    (tmp_path / "flights").mkdir()
    with pytest.raises(SourceNotFound) as caught:
        validate_source(files_stream(tmp_path / "flihgts"))
    assert caught.value.primary == f'path "{tmp_path}/flihgts" of stream "S" does not exist'
    assert caught.value.hint == f'Did you mean "{tmp_path}/flights"?'
    with pytest.raises(SourceNotFound) as caught:
        validate_source(files_stream(tmp_path / "no" / "such" / "*.csv"))
    assert caught.value.detail == f'"{tmp_path}" exists, but has no "no".'


def test_a_registered_source_is_absolute_and_has_a_start(tmp_path: Path) -> None:
    relative = resolve_source(files_stream(Path("data/../in")), base=tmp_path, now_us=7)
    assert relative.source == FilesSource("parquet", str(tmp_path / "in"), settle_us=0)
    assert resolve_source(relative, base=Path("/else"), now_us=7) == relative
    started = resolve_source(stream_of(generator_of()), base=tmp_path, now_us=7)
    assert started.source == generator_of(start_us=7)
    assert resolve_source(started, base=tmp_path, now_us=8) == started


@pytest.mark.parametrize(
    ("source", "problem", "hint"),
    [
        (generator_of(rate_per_s=0.0), "rate 0 is out of range", "Give more than 0"),
        (generator_of(rate_per_s=float("nan")), "rate nan is out of range", "Give more than 0"),
        (generator_of(rows=-1), "-1 rows cannot be generated", "Give 0 or more"),
        (
            generator_of(start_us=2**61),
            "event times would lie outside the years 1 to 9999",
            "Choose an earlier start",
        ),
        (generator_of(GeneratedColumn("lx")), 'column "lx" does not exist', 'Did you mean "'),
        (generator_of(GeneratedColumn("ts")), 'column "ts" is the event time', "Leave it out"),
        (generator_of(GeneratedColumn("l"), GeneratedColumn("L")), 'column "L" is given twice', "Keep one"),
        (
            generator_of(GeneratedColumn("l", low=5, high=5)),
            'column "l": uniform from 5 to 5 is empty',
            "low must",
        ),
        (generator_of(GeneratedColumn("l", "choice")), 'column "l": choice has no values', "List them"),
        (
            generator_of(GeneratedColumn("l", "choice", values=("1", "x"))),
            'column "l": value "x" is not of type bigint',
            "Write an integer of 64 bits.",
        ),
        (generator_of(GeneratedColumn("s", "normal")), 'column "s": normal cannot fill a string', "Use"),
        (generator_of(GeneratedColumn("b", "zipf")), 'column "b": zipf cannot fill a boolean', "Use"),
        (
            generator_of(GeneratedColumn("x", "normal", high=-1)),
            'column "x": the deviation -1 is negative',
            "high is",
        ),
        (
            generator_of(GeneratedColumn("l", "zipf", cardinality=0)),
            'column "l": cardinality or skew',
            "Use 1 to",
        ),
        (
            generator_of(GeneratedColumn("i", high=2.0**40)),
            'column "i": its values leave the range of int',
            "Stay",
        ),
        (
            generator_of(GeneratedColumn("m", high=1e9)),
            'column "m": its values leave the range of decimal',
            "Stay",
        ),
        (
            generator_of(GeneratedColumn("x", high=float("inf"))),
            'column "x": low and high must be finite',
            "Give",
        ),
    ],
)
def test_a_generator_that_cannot_be_meant_is_refused(
    source: GeneratorSource, problem: str, hint: str
) -> None:
    with pytest.raises(InvalidGenerator) as caught:
        validate_source(stream_of(source, columns=EVERY_TYPE))
    assert caught.value.primary.startswith(f'generator of stream "S": {problem}')
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


def test_what_validation_accepts_can_be_generated_for_every_type_and_distribution(tmp_path: Path) -> None:
    from service.inputs.sources.generated.generator import generate

    accepted = 0
    for column in EVERY_TYPE[1:]:
        for kind in ("uniform", "normal", "zipf", "choice", "sequence"):
            spec = GeneratedColumn(
                column.name, kind, values=("2013-01-01",) if column.type == "date" else ("1",)
            )
            source = generator_of(spec, start_us=0, rows=100)
            stream = replace(stream_of(source, columns=EVERY_TYPE))
            try:
                validate_source(stream)
            except InvalidGenerator:
                continue
            accepted += 1
            table = generate(stream, source, 0, 1, (column.name,))
            table.validate(full=True)
            assert table.num_rows > 50
    assert accepted == 31  # of 35: boolean takes only uniform and choice, text no normal
