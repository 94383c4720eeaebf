import textwrap
from itertools import pairwise
from pathlib import Path

import pytest

from catalog.errors import InvalidInput
from catalog.values.migration import OnLeave
from catalog.values.stream import Column, FilesSource, GeneratorSource, HttpSource
from service.documents.workload import bind_workload, check_sources, load_workload

STREAMS = """\
streams:
  - name: A
    columns: {ts: timestamp, k: bigint, v: double}
    event_time: ts
    lateness: 5s
    source: {type: files, format: parquet, path: data/A, max_files_per_batch: 1}
  - name: B
    columns: {ts: timestamp, k: bigint}
    event_time: ts
    source: {type: files, path: data/B}
"""


def bomb(nested: str) -> str:
    """Return a document in which each line holds the line before nine times."""
    lines = ["a: &a {x: 1, y: 2}"]
    lines += [f"{b}: &{b} " + nested.format(", ".join([f"*{a}"] * 9)) for a, b in pairwise("abcdefgh")]
    return "\n".join(lines)


QUERIES = """\
queries:
  - {name: q1, cql: "SELECT A.k FROM A [RANGE 1 MIN], B [RANGE 1 MIN] WHERE A.k = B.k AND A.v < 0.2"}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "workload.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def error_of(tmp_path: Path, text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        bind_workload(load_workload(write(tmp_path, text)))
    return caught.value


def test_streams_are_read_with_paths_from_the_files_own_directory(tmp_path: Path) -> None:
    workload = load_workload(write(tmp_path, STREAMS + QUERIES))

    a, b = workload.streams
    assert a.columns == (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
    assert (a.event_time, a.lateness_us, b.lateness_us) == ("ts", 5_000_000, 0)
    assert a.source == FilesSource("parquet", str(tmp_path / "data" / "A"), 1)
    assert b.source == FilesSource("parquet", str(tmp_path / "data" / "B"), None)
    assert workload.strategy is None
    assert workload.family_strategies == {}
    assert workload.partitioning is None


def test_http_and_generator_sources_are_read(tmp_path: Path) -> None:
    text = """\
    streams:
      - {name: H, columns: {ts: timestamp, k: int}, event_time: TS, source: {type: http}, idle_timeout: 1 min}
      - name: G
        columns: {ts: timestamp, k: bigint, c: string}
        event_time: ts
        source:
          type: generator
          rate_per_s: 100
          seed: 7
          start: 2013-01-01T00:00:00Z
          columns:
            K: {distribution: zipf, cardinality: 50}
            c: {distribution: choice, values: [1, x, true]}
    """
    h, g = load_workload(write(tmp_path, text)).streams

    assert h.source == HttpSource()
    assert (h.event_time, h.idle_timeout_us) == ("ts", 60_000_000)
    assert isinstance(g.source, GeneratorSource)
    assert g.source.start_us == 1_356_998_400_000_000
    assert [column.name for column in g.source.columns] == ["k", "c"]
    assert g.source.columns[1].values == ("1", "x", "true")


def test_a_stream_of_files_says_what_becomes_of_bad_ones(tmp_path: Path) -> None:
    text = """
streams:
  - {name: A, columns: {ts: timestamp}, event_time: ts, on_error: skip-rows, source: {type: files, path: a}}
  - {name: B, columns: {ts: timestamp}, event_time: ts, source: {type: files, path: b}}
"""
    streams = load_workload(write(tmp_path, text + "queries: []\n")).streams
    assert [stream.on_error for stream in streams] == ["skip-rows", "set-aside"]
    error = error_of(tmp_path, text.replace("{type: files, path: a}", "{type: http}") + "queries: []\n")
    assert error.primary == 'on_error is for files, but stream "A" has a source of type http'


def test_script_steps_come_in_order_of_their_batches(tmp_path: Path) -> None:
    script = """\
script:
  - {at_batch: 5, remove: q1}
  - {at_batch: 3, add: {name: q2, cql: "SELECT 1", backfill: state}}
"""
    steps = load_workload(write(tmp_path, STREAMS + QUERIES + script)).script

    assert [(step.at_batch, step.action, step.name) for step in steps] == [
        (3, "add", "q2"),
        (5, "remove", "q1"),
    ]
    assert steps[0].query is not None
    assert steps[0].query.backfill == "state"


def test_a_migration_says_which_strategies_it_leads_to(tmp_path: Path) -> None:
    text = """\
strategy: pullup
family_strategies: {B.k = A.k: unshared}
partitioning: replicate
script:
  - {at_batch: 3, migrate: {strategy: cpu-opt}}
  - at_batch: 5
    migrate:
      family_strategies: {A.k = B.k: pushdown}
"""
    workload = load_workload(write(tmp_path, STREAMS + QUERIES + text))
    bind_workload(workload)

    assert (workload.strategy, workload.family_strategies) == ("pullup", {"B.k = A.k": "unshared"})
    assert workload.partitioning == "replicate"
    found = [step.migration for step in workload.script if step.migration is not None]
    assert [(m.strategy, m.family_strategies) for m in found] == [
        ("cpu-opt", {}),
        (None, {"A.k = B.k": "pushdown"}),
    ]


def test_a_migration_can_split_merge_clean_up_and_say_when_chains_shrink(tmp_path: Path) -> None:
    text = """\
script:
  - {at_batch: 1, migrate: {splits: [{at: 15s}], merges: [{at: 10s, side: A}]}}
  - {at_batch: 2, migrate: {on_leave: manual}}
  - {at_batch: 3, migrate: {cleanup: true}}
"""
    workload = load_workload(write(tmp_path, STREAMS + QUERIES + text))
    first, second, third = (step.migration for step in workload.script)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [(s.kind, s.at_us, s.side) for _, s in first.steps] == [
        ("merge", 10_000_000, "A"),
        ("split", 15_000_000, None),
    ]
    assert (second.on_leave, third.cleanup) == (OnLeave("manual"), True)


@pytest.mark.parametrize(
    ("migration", "message", "text"),
    [
        ("{splits: [{at: soon}]}", '"soon" is not a length of time', "soon"),
        ("{splits: [{at: 5s, on: 5s}]}", 'key "on" is not known', "on"),
        ("{cleanup: true, strategy: pullup}", "a migration cannot be about strategies and cleanup", "{"),
        ("{on_leave: sometimes}", 'on_leave: expected "auto", "manual" or', "sometimes"),
    ],
)
def test_a_migration_that_cannot_be_meant_is_located(
    tmp_path: Path, migration: str, message: str, text: str
) -> None:
    script = f"script:\n  - {{at_batch: 1, migrate: {migration}}}\n"
    with pytest.raises(InvalidInput) as caught:
        load_workload(write(tmp_path, STREAMS + QUERIES + script))
    assert message in caught.value.primary
    location = caught.value.location
    assert location is not None
    assert location.text.splitlines()[location.line - 1][location.column - 1 :].startswith(text)


def test_queries_are_bound_in_the_order_in_which_they_enter(tmp_path: Path) -> None:
    script = """\
script:
  - at_batch: 3
    add:
      name: q2
      cql: SELECT A.k FROM A [RANGE 1 SECOND], B [RANGE 2 SECONDS] WHERE A.k = B.k
      backfill: state
"""
    bound = bind_workload(load_workload(write(tmp_path, STREAMS + QUERIES + script)))

    assert [stream.id for stream in bound.streams] == [1, 2]
    assert [(query.name, query.id, query.backfill) for query in bound.queries.values()] == [
        ("q1", 1, "none"),
        ("q2", 2, "state"),
    ]


@pytest.mark.parametrize(
    ("text", "place", "primary"),
    [
        ("", (1, 1), "expected an object with keys and values"),
        ("queries: []\n", (1, 1), 'key "streams" is missing'),
        ("streams: []\n", (1, 10), "streams: expected 1 or more entries, not 0"),
        (STREAMS.replace("lateness", "latenes"), (5, 5), 'key "latenes" is not known'),
        (STREAMS.replace("v: double", "v: doubel"), (3, 44), 'type "doubel" does not exist'),
        (STREAMS.replace("v: double", "K: double"), (3, 44), 'column "K" is declared twice in stream "A"'),
        (STREAMS.replace("v: double", "_pos: double"), (3, 47), 'column name "_pos" is reserved'),
        (
            STREAMS.replace("event_time: ts", "event_time: t", 1),
            (4, 17),
            'event time "t" is not a column of stream "A"',
        ),
        (
            STREAMS.replace("event_time: ts", "event_time: k", 1),
            (4, 17),
            'event time "k" of stream "A" has type bigint',
        ),
        (STREAMS.replace("5s", "5 parsecs"), (5, 15), 'lateness: "5 parsecs" is not a length of time'),
        (
            STREAMS.replace("type: files, format", "type: file, format"),
            (6, 20),
            'source type "file" is not known',
        ),
        (STREAMS.replace("format: parquet", "format: parket"), (6, 35), 'format: "parket" is not known'),
        (STREAMS.replace("name: B", "name: a"), (7, 11), 'stream "a" is declared twice'),
        (STREAMS.replace("name: B", "name: 2b"), (7, 11), 'stream name "2b" is not allowed'),
        (STREAMS.replace("name: B", "name: 2"), (7, 11), "name: expected text, not 2"),
        (STREAMS + "strategy: cpu-best\n", (11, 11), 'strategy: "cpu-best" is not known'),
        (
            STREAMS + QUERIES + "family_strategies: {A.k = B.v: cpu-opt}\n",
            (13, 32),
            'family "A.k = B.v" does not exist',
        ),
        (STREAMS + QUERIES + QUERIES[9:], (13, 12), 'query "q1" is declared twice'),
        (STREAMS + QUERIES.replace("A.v", "A.w"), (12, 93), 'column "w" does not exist in stream "A"'),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, remove: q}]\n",
            (13, 32),
            'query "q" is not running at batch 1',
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1}]\n",
            (13, 10),
            "a script step needs exactly one of add, update, remove, pause, resume and migrate",
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, migrate: {}}]\n",
            (13, 24),
            "script step migrate is empty",
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, migrate: {strategy: best}}]\n",
            (13, 44),
            'strategy: "best" is not known',
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, migrate: {strateg: mem-opt}}]\n",
            (13, 34),
            'key "strateg" is not known',
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, update: {name: q1}}]\n",
            (13, 32),
            'key "cql" is missing',
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, update: {name: q2, cql: x}}]\n",
            (13, 39),
            'query "q2" is not running at batch 1',
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, pause: q1}, {at_batch: 2, pause: q1}]\n",
            (13, 57),
            'query "q1" is not running at batch 2',
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, resume: q1}]\n",
            (13, 32),
            'query "q1" is not paused at batch 1',
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, pause: q1, resume: q1}]\n",
            (13, 10),
            "a script step needs exactly one of add, update, remove, pause, resume and migrate",
        ),
        (
            STREAMS + QUERIES + "script: [{at_batch: 1, remove:}]\n",
            (13, 24),
            "script step remove is empty",
        ),
        (STREAMS + "streams: []\n", (11, 1), 'key "streams" is given twice'),
        ("streams: [\n", (2, 1), "not valid YAML: expected the node content, but found '<stream end>'"),
        ("&a [*a]\n", (1, 1), "the document contains itself"),
        ("streams: [{name: a\0b}]", (1, 19), "not valid YAML: the character U+0000 is not allowed"),
        ("streams: !!bool maybe", (1, 10), "'maybe' does not fit its tag"),
        *(
            (text, place, f"not valid YAML: more than {told}")
            for text, place, told in (
                ("streams: " + "[" * 20_000, (1, 73), "64 levels of lists and mappings"),
                ("- " * 20_000, (1, 129), "64 levels of lists and mappings"),
                (bomb("[{}]"), (7, 8), "500000 values, with those that aliases stand for"),
                (bomb("{{<<: [{}]}}"), (7, 13), "500000 values, with those that aliases stand for"),
            )
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(
    tmp_path: Path, text: str, place: tuple[int, int], primary: str
) -> None:
    error = error_of(tmp_path, text)

    assert error.location is not None
    assert error.primary == primary
    assert (error.location.line, error.location.column) == place
    assert error.location.file == str(tmp_path / "workload.yaml")


def test_a_mistake_in_a_block_of_cql_is_told_with_its_line(tmp_path: Path) -> None:
    error = error_of(
        tmp_path,
        STREAMS
        + """\
queries:
  - name: q1
    cql: |
      SELECT A.k
      FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS]
      WHERE A.k = B.kk
""",
    )

    assert error.location is not None
    assert (error.location.line, error.location.column) == (16, 21)
    assert 'Did you mean "k"?' in (error.hint or "")


def test_a_name_can_be_given_again_when_it_is_free(tmp_path: Path) -> None:
    script = "script: [{at_batch: 1, remove: q1}, {at_batch: 1, add: {name: q1, cql: x}}]\n"

    steps = load_workload(write(tmp_path, STREAMS + QUERIES + script)).script

    assert [step.action for step in steps] == ["remove", "add"]


def test_keys_are_text_as_written(tmp_path: Path) -> None:
    text = STREAMS.replace("k: bigint}", "on: bigint}")

    assert load_workload(write(tmp_path, text)).streams[1].columns[1].name == "on"


def test_a_path_that_does_not_exist_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "data" / "A").mkdir(parents=True)

    with pytest.raises(InvalidInput, match='data/B" of stream "B" does not exist') as caught:
        check_sources(load_workload(write(tmp_path, STREAMS)))

    assert caught.value.location is not None
    assert (caught.value.location.line, caught.value.location.column) == (10, 33)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.yaml"):
        load_workload(tmp_path / "nowhere.yaml")
