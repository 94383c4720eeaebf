"""What is fuzzed by Atheris, a coverage-guided fuzzer (libFuzzer for Python).

    python -m tests.fuzz.targets cql CORPUS -max_total_time=30

A target takes bytes and returns, or raises what Sluice raises on purpose for bad input. Anything else, and
whatever takes longer than a minute (a busy machine may hold it up for seconds) or more than 2 GB, ends the
process with an error and the input.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import warnings

import atheris

import operators.kernels

# Compiled by numba, which knows nothing of the marks that Atheris puts into code.
for _kernel in pkgutil.iter_modules(operators.kernels.__path__, "operators.kernels."):
    importlib.import_module(_kernel.name)

warnings.simplefilter("ignore")
_TARGET = sys.argv[1] if __name__ == "__main__" else ""
#: What is instrumented for coverage, by target: instrumenting all that is imported takes a minute.
_INSTRUMENTED = {
    "cql": ["planner", "sqlglot.parser", "sqlglot.tokens", "catalog.times.durations"],
    "events": ["api.streams.event_body", "api.json_body", "service.inputs", "catalog"],
    "payload": ["operators.pack.payload", "operators.segments.encoding.row_codec"],
}

with atheris.instrument_imports(include=_INSTRUMENTED.get(_TARGET, [])):
    import pyarrow as pa

    from api.streams.event_body import parse_events
    from catalog.errors import InternalError, InvalidInput
    from operators.errors import CorruptPayload
    from operators.filters.expressions import evaluate_filters
    from operators.pack.payload import Payload
    from planner.bind.bind import bind
    from service.inputs.sources.posted.events import events_to_table
    from tests.fuzz.corpus import EVENT_STREAM, EVENT_VALUES, cql_parts
    from tests.planner.cql_streams import STREAMS, rows

_PARTS = cql_parts()
_ROWS = {name: rows(stream) for name, stream in STREAMS.items() if name == "A"}


def cql(data: bytes) -> None:
    """Bind a text of CQL's parts and of anything else; what is bound is evaluated."""
    provider = atheris.FuzzedDataProvider(data)
    parts: list[str] = []
    while provider.remaining_bytes() and len(parts) < 200:
        if provider.ConsumeBool():
            parts.append(_PARTS[provider.ConsumeIntInRange(0, len(_PARTS) - 1)])
        else:
            parts.append(provider.ConsumeUnicodeNoSurrogates(provider.ConsumeIntInRange(1, 40)))
    text = " ".join(parts) if provider.ConsumeBool() else data.decode("utf-8", "ignore")
    try:
        query = bind(text, STREAMS)
    except InvalidInput as error:
        str(error)
        return
    for side in (query.a, query.b):
        if side.filter is not None and side.stream in _ROWS:
            evaluate_filters(_ROWS[side.stream], [side.filter])


def events(data: bytes) -> None:
    """Read an event body into rows; what is taken can be stored and answered."""
    provider = atheris.FuzzedDataProvider(data)
    media_type = "application/json" if provider.ConsumeBool() else "application/x-ndjson"
    body = _written(provider) if provider.ConsumeBool() else data
    try:
        table = events_to_table(EVENT_STREAM, parse_events(body, media_type))
    except InvalidInput as error:
        str(error).encode()
        return
    table.validate(full=True)
    assert table.num_rows
    table.to_pylist()


def _written(provider: atheris.FuzzedDataProvider) -> bytes:
    """Write events of the stream's columns, with values that a person or a program might send."""
    events = []
    for _ in range(provider.ConsumeIntInRange(1, 3)):
        fields = ['"ts": 1']
        for _ in range(provider.ConsumeIntInRange(0, 4)):
            column = EVENT_STREAM.columns[provider.ConsumeIntInRange(0, len(EVENT_STREAM.columns) - 1)].name
            kind = provider.ConsumeIntInRange(0, 3)
            if kind == 0:
                value = EVENT_VALUES[provider.ConsumeIntInRange(0, len(EVENT_VALUES) - 1)]
            elif kind == 1:
                value = json.dumps(provider.ConsumeUnicode(20))
            elif kind == 2:
                value = str(provider.ConsumeInt(9))
            else:
                value = repr(provider.ConsumeFloat())
            fields.append(f'"{column}": {value}')
        events.append("{" + ", ".join(fields) + "}")
    return f"[{', '.join(events)}]".encode()


def payload(data: bytes) -> None:
    """Decode a payload, and look at every value of what is in it."""
    try:
        found = Payload.decode(data)
    except (CorruptPayload, InternalError):
        return
    for batch in (*found.rows.values(), *found.suspects.values()):
        assert isinstance(batch, pa.RecordBatch)
        batch.validate()


if __name__ == "__main__":
    atheris.Setup(
        [sys.argv[0], *sys.argv[2:], "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1"],
        {"cql": cql, "events": events, "payload": payload}[_TARGET],
    )
    atheris.Fuzz()
