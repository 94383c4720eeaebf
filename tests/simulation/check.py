"""Comparison of a world with nested loops over what its clients were acknowledged (design: Semantics).

Which rows a batch has, and which plan is in force, the manifests say: that is the service's to choose. All
else follows: lateness, what is held for a query that enters, which pairs it gets, in which order.
"""

from __future__ import annotations

import json
from collections import defaultdict

from catalog.values.query import Query
from catalog.values.stream import HttpSource, Stream
from service.inputs.partitions import ROW_BITS
from tests.operators.oracle import NestedLoops
from tests.operators.queries import Row
from tests.simulation.world import World

#: Results of a query in order: batch, event time, positions of both rows, their ids.
Results = list[tuple[int, int, int, int, int | None, int | None]]
#: In place of the position of a row that is absent: behind all others.
NO_ROW = 2**62


def check(world: World) -> int:
    """Compare results, sinks, late rows and offsets; return how many results there were."""
    ledger, store = world.ledger, world.service.workspace._store
    live = {stream.id for stream in store.streams.all()}
    for stream_id, rows in ledger.rows.items():
        if stream_id in live and ledger.streams[stream_id].source.type == "http":
            assert sorted(rows) == list(range(len(rows))), f"offsets of stream {stream_id} have gaps"
            assert world.service.workspace._events.end(stream_id) == len(rows), "an event that nobody sent"
    assert {record.query.name for record in store.queries.running()} == {
        name for name, (_, runs) in world.queries.items() if runs
    }, "an acknowledged change of queries is lost"
    assert {record.query.name for record in store.queries.paused()} == {
        name for name, (_, runs) in world.queries.items() if not runs
    }, "an acknowledged pause is lost"
    wanted, series = _expected(world)
    results = 0
    for number, reading in ledger.readings.items():
        expected = sorted(
            row for query, rows in wanted.items() if series.get(query) == number for row in rows
        )
        pairs = [row[-2:] for row in expected]
        results += len(pairs)
        for place, pair in sorted(reading.got.items()):
            wanted_pair = pairs[place] if place < len(pairs) else None
            assert pair == wanted_pair, f"series {number}: result {place} is {pair}, not {wanted_pair}"
        if not reading.ended:
            assert reading.place == len(pairs), f"series {number}: {reading.place} of {len(pairs)} results"
        if number in ledger.sinks:
            _check_files(world, number, ledger.sinks[number], expected)
    return results


def _check_files(world: World, series: int, directory: str, expected: Results) -> None:
    """Each batch with results has one file, with its results in order."""
    batches: dict[int, list[tuple[int | None, int | None]]] = defaultdict(list)
    for row in expected:
        batches[row[0]].append(row[-2:])
    root = world.service.workspace.data_dir.exports / directory
    found = {}
    for path in sorted(root.glob("*.ndjson")) if root.exists() else ():
        batch = int(path.name.split("-")[1])
        assert batch not in found, f"batch {batch} has two files"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found[batch] = [(row["x"], row["y"]) for row in rows]
    for batch in sorted(found.keys() | batches.keys()):
        given, wanted = found.get(batch), batches.get(batch)
        assert given == wanted, f"sink of series {series}, batch {batch}: {given}, not {wanted}"


def _expected(world: World) -> tuple[dict[int, Results], dict[int, int]]:
    """Return the results of each query by id, and its series."""
    ledger, streams = world.ledger, world.ledger.streams
    loops = NestedLoops(streams)
    results: dict[int, Results] = defaultdict(list)
    queries: dict[int, Query] = {}
    before: dict[str, int] = {}
    version, late = 0, 0
    for batch, manifest in sorted(ledger.manifests.items()):
        end = dict(manifest.input_end)
        assert end["batch"] == batch + 1
        changed = None
        if manifest.plan_version != version:
            version = manifest.plan_version
            known = max(v for v in ledger.queries if v <= version)
            changed = ledger.queries[known]
            queries |= {query.id: query for query in changed}
        rows = {
            i: _between(ledger.rows[i], before.get(str(i), 0), end.get(str(i), 0), _shift(stream))
            for i, stream in streams.items()
        }
        beats = [
            beat
            for seq, beat in sorted(ledger.beats.items())
            if before.get("control", 0) < seq <= end["control"]
        ]
        found = loops.step(changed, {i: arrived for i, arrived in rows.items() if arrived}, beats)
        for (query_id, pos_a, pos_b), count in found.items():
            assert count == 1
            query = queries[query_id]
            a, b = query.a.stream_id, query.b.stream_id
            t = loops.times[query_id, pos_a, pos_b]
            ids = (
                None if pos_a is None else ledger.ids[a, pos_a],
                None if pos_b is None else ledger.ids[b, pos_b],
            )
            # One of the two may be NULL, as of an anti join.
            x, y, *_ = query.outputs
            if x.sql.startswith("b.") or y.sql.startswith("a."):
                ids = ids[::-1]
            places = (NO_ROW if pos is None else pos for pos in (pos_a, pos_b))
            results[query_id].append((batch, t, *places, *ids))
        counted = sum(stream.late_rows for stream in manifest.streams)
        now = sum(map(len, loops.late.values()))
        assert counted == now - late, f"batch {batch}: {counted} late rows, expected {now - late}"
        late, before = now, end
    return results, ledger.series


def _shift(stream: Stream) -> int:
    """Return by how many bits the positions of rows are longer than those of an offset."""
    return 0 if isinstance(stream.source, HttpSource) else ROW_BITS


def _between(rows: dict[int, Row], start: int, end: int, shift: int) -> list[Row]:
    return [row for pos, row in sorted(rows.items()) if start <= pos >> shift < end]
