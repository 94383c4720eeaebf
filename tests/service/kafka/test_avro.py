"""Messages in Avro with the schemas of a registry: written by Confluent's own serializer, read as events."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry import topic_subject_name_strategy as by_topic
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from catalog.values.stream import Column, EnvSecret, KafkaSource, SchemaRegistry, Stream
from service.errors import KafkaDown, MessageRejected, SecretMissing, SourceNotAllowed
from service.inputs.checks.validate import check_servers, validate_source
from service.inputs.messages import avro
from service.inputs.partitions import TopicPartition, TopicRange
from service.inputs.reading.sample import WorkloadRows
from service.inputs.sources.topics.topic_reader import read_topic
from service.job.admission.admission import admit
from tests.service.kafka.brokers import Brokers
from tests.service.kafka.registry import Registry, registry
from tests.service.kafka.test_topics import inputs, rows_of

COLUMNS = (
    Column("ts", "timestamp"),
    Column("k", "bigint"),
    Column("amount", "decimal(12,2)"),
    Column("rate", "double"),
    Column("day", "date"),
    Column("note", "string"),
    Column("ok", "boolean"),
)
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
RECORD = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "ts", "type": MICROS},
        {"name": "k", "type": "long"},
        {"name": "amount", "type": ["null", AMOUNT]},
        {"name": "rate", "type": "double"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "ok", "type": "boolean"},
        {"name": "not_asked_for", "type": {"type": "array", "items": "bytes"}},
    ],
}


@pytest.fixture
def schemas() -> Iterator[Registry]:
    with registry() as found:
        yield found
    for cached in (avro._client, avro._parsed):
        cached.cache_clear()


class Writer:
    """Confluent's serializer, which registers schemas."""

    def __init__(self, schemas: Registry) -> None:
        self.client = SchemaRegistryClient({"url": schemas.url})

    def value(self, topic: str, schema: Any, found: object, *references: SchemaReference) -> bytes:
        registered = Schema(json.dumps(schema), "AVRO", list(references))
        options = {"subject.name.strategy": by_topic}
        write = AvroSerializer(self.client, registered, conf=options)
        written = write(found, SerializationContext(topic, MessageField.VALUE))
        assert written is not None
        return written


def payment(ts_us: int, k: int, **more: Any) -> dict[str, Any]:
    row = {
        "ts": _time(ts_us),
        "k": k,
        "amount": Decimal("1.50"),
        "rate": 0.5,
        "day": date(2026, 1, 31),
        "note": "ü",
        "ok": True,
        "not_asked_for": [b"x"],
    }
    return row | more


def _time(micros: int) -> datetime:
    whole, rest = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(whole, UTC).replace(microsecond=rest)


def avro_stream(kafka: Brokers, schemas: Registry, topic: str, **more: Any) -> Stream:
    options: dict[str, Any] = {"registry": SchemaRegistry(schemas.url)} | more
    source = KafkaSource(kafka.cluster, topic, "avro", **options)
    return Stream(1, "S", COLUMNS, "ts", 1000, source)


def whole(messages: int, dead_letters: Path | None = None) -> TopicPartition:
    return TopicPartition(1, 0, None, messages, (TopicRange(0, 0, messages, True),), dead_letters)


def test_records_are_events_whatever_schema_they_were_written_with(kafka: Brokers, schemas: Registry) -> None:
    kafka.tell("create", "avro", 2)
    writer, rng, seed = Writer(schemas), Random(40), 40
    older = RECORD | {"fields": [f for f in RECORD["fields"] if f["name"] not in ("note", "rate")]}
    rows = [
        payment(
            t,
            t,
            amount=rng.choice([None, Decimal(rng.randrange(-(10**12) + 1, 10**12)) / 100]),
            rate=rng.choice([math.inf, -0.0, rng.random()]),
            day=date.fromordinal(rng.randrange(1, 3_000_000)),
            note=rng.choice([None, "", "ü\n"]),
            ok=rng.random() < 0.5,
        )
        for t in sorted(rng.randrange(10**15) for _ in range(200))
    ]
    kafka.produce(
        "avro",
        [
            {"value": writer.value("avro", older if n % 3 == 0 else RECORD, row), "partition": n % 2}
            for n, row in enumerate(rows)
        ],
    )
    stream, found = avro_stream(kafka, schemas, "avro"), inputs()
    now: Mapping[str, int] = {}
    read: list[dict[str, Any]] = []
    while len(read) < len(rows):
        lanes = found.lanes(stream, now)
        then = admit(lanes, now, found, max_rows=50).positions
        read += rows_of(found, lanes, now, then)
        now = then
    names = [column.name for column in COLUMNS]
    for n, (row, got) in enumerate(zip(rows, sorted(read, key=lambda r: r["k"]), strict=True)):
        wanted = {name: row[name] for name in names}
        if n % 3 == 0:
            wanted |= {"note": None, "rate": None}
        got = {name: got[name] for name in names}
        got["ts"] = got["ts"].replace(tzinfo=UTC)
        assert got == wanted, f"row {n}, seed {seed}"
    assert sorted(schemas.asked) == ["/schemas/ids/1", "/schemas/ids/2"], "each is asked for once"
    sample = WorkloadRows().sample(stream, ["k"])
    assert sample is not None
    assert sample.table.num_rows == 200
    found.close()


def test_a_schema_may_refer_to_others(kafka: Brokers, schemas: Registry) -> None:
    kafka.tell("create", "parts", 1)
    writer = Writer(schemas)
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    kinds = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    writer.client.register_schema("money", Schema(json.dumps(money), "AVRO"))
    writer.client.register_schema("kind", Schema(json.dumps(kinds), "AVRO"))
    using = {
        "type": "record",
        "name": "Using",
        "fields": [
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "k", "type": ["null", "int"]},
            {"name": "paid", "type": "Money"},
            {"name": "note", "type": "Kind"},
        ],
    }
    references = (SchemaReference("Money", "money", 1), SchemaReference("Kind", "kind", 1))
    row = {"ts": _time(1_000), "k": 7, "paid": {"cents": 3}, "note": "B"}
    value = writer.value("parts", using, row, *references)
    kafka.produce("parts", [{"value": value, "partition": 0}])
    (read,) = read_topic(avro_stream(kafka, schemas, "parts"), whole(1), ["ts", "k", "note"]).to_pylist()
    assert (read["ts"].replace(tzinfo=UTC), read["k"], read["note"]) == (_time(1_000), 7, "B")


def test_values_that_are_no_events_stop_the_batch_or_are_kept_apart(
    kafka: Brokers, schemas: Registry, tmp_path: Path
) -> None:
    kafka.tell("create", "unfit", 1)
    writer = Writer(schemas)
    good = writer.value("unfit", RECORD, payment(1, 1))
    schemas.schemas.append({"schema": "{}", "schemaType": "JSON"})
    schemas.schemas.append({"schema": '{"type": "nothing"}'})
    text = writer.value("unfit", {"type": "string"}, "not a record")
    other = {"type": "record", "name": "Other", "fields": [{"name": "ts", "type": "boolean"}]}
    unfit = [
        (b'{"ts": 1}', "its value is not Avro: it does not begin with the id of a schema"),
        (b"\0\0\0\0", "it does not begin with the id of a schema"),
        (b"\0\0\0\0\x63?", "its value is not Avro: the registry has no schema 99"),
        (b"\0\0\0\0\x02?", "its value is not Avro: schema 2 is not of Avro but of JSON"),
        (b"\0\0\0\0\x03?", "nothing"),
        (good[:-4], "schema 1 cannot read it ("),
        (good + b"!", "bytes follow the value that schema 1 reads"),
        (text, 'its value is not a record but "not a record"'),
        (writer.value("unfit", other, {"ts": True}), 'column "ts": true is not a time'),
    ]
    sent = [good, *(value for value, _ in unfit), None, good]
    kafka.produce("unfit", [{"value": value, "partition": 0} for value in sent])
    with pytest.raises(MessageRejected) as refused:
        read_topic(avro_stream(kafka, schemas, "unfit"), whole(len(sent)), ["k"])
    assert 'message 1 of partition 0 of topic "unfit" is not an event of stream "S"' in refused.value.primary
    kept = avro_stream(kafka, schemas, "unfit", on_bad="dead-letter")
    assert read_topic(kept, whole(len(sent), tmp_path), ["k"]).column("k").to_pylist() == [1, 1]
    (path,) = tmp_path.iterdir()
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert [letter["offset"] for letter in letters] == list(range(1, len(unfit) + 1))
    for letter, (_, reason) in zip(letters, unfit, strict=True):
        assert reason in letter["reason"]


def test_any_bytes_are_an_event_or_told(schemas: Registry, kafka: Brokers, chosen_seed: int) -> None:
    good, rng = Writer(schemas).value("bytes", RECORD, payment(1, 1)), Random(chosen_seed)
    stream = avro_stream(kafka, schemas, "bytes")
    assert isinstance(stream.source, KafkaSource)
    decode = avro.avro_decoder(stream, stream.source, ["ts", "k", "note"])
    outcomes = set[str]()
    for _ in range(3000):
        damaged = bytearray(good[: rng.randrange(5, len(good) + 1)])
        for _ in range(rng.randrange(3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        damaged[:5] = good[:5]
        try:
            found = decode(bytes(damaged))
            outcomes.add(type(found).__name__)
        except avro.UnfitAvroError:
            outcomes.add("unfit")
    assert outcomes == {"dict", "unfit"}, chosen_seed


def test_a_registry_that_is_away_costs_nothing_but_time(
    kafka: Brokers, schemas: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "_RETRIES", 0)
    kafka.tell("create", "away-avro", 1)
    value = Writer(schemas).value("away-avro", RECORD, payment(1, 1))
    kafka.produce("away-avro", [{"value": value, "partition": 0}] * 3)
    stream, found = avro_stream(kafka, schemas, "away-avro"), inputs()

    def admitted() -> dict[str, int]:
        lanes = found.lanes(stream, {})
        return dict(admit(lanes, {}, found, max_rows=10).positions)

    schemas.status = 503

    def look_until_messages_come() -> None:
        for _ in range(100):  # they need not be there at the first look
            admitted()

    with pytest.raises(KafkaDown) as down:
        look_until_messages_come()
    assert down.value.stream_id == stream.id
    assert down.value.detail == "The registry of its schemas says: out of order (status 503)."
    assert schemas.url in str(down.value)
    with pytest.raises(KafkaDown, match='topic "away-avro" of stream "S" cannot be read'):
        read_topic(stream, whole(3), ["k"])
    assert WorkloadRows().sample(stream, ["k"]) is None
    schemas.status = None
    while (then := admitted()) != {"1/0": 3}:
        pass
    assert [row["k"] for row in rows_of(found, found.lanes(stream, {}), {}, then)] == [1, 1, 1]
    found.close()


def test_a_registry_is_asked_before_the_stream_is_registered(
    kafka: Brokers, schemas: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro, "_RETRIES", 0)
    kafka.tell("create", "asked", 1)
    schemas.user = "sluice:hunter2"
    with pytest.raises(KafkaDown, match="Unauthorized"):
        validate_source(avro_stream(kafka, schemas, "asked"))
    known = SchemaRegistry(schemas.url, "sluice", EnvSecret("SLUICE_SECRET_REGISTRY"))
    stream = avro_stream(kafka, schemas, "asked", registry=known)
    with pytest.raises(SecretMissing, match="SLUICE_SECRET_REGISTRY"):
        validate_source(stream)
    monkeypatch.setenv("SLUICE_SECRET_REGISTRY", "wrong")
    with pytest.raises(KafkaDown, match="Unauthorized") as refused:
        validate_source(stream)
    assert "wrong" not in str(refused.value)
    monkeypatch.setenv("SLUICE_SECRET_REGISTRY", "hunter2")
    validate_source(stream)
    broker = kafka.cluster.servers
    check_servers(stream, [*broker, schemas.url.removeprefix("http://")])
    with pytest.raises(SourceNotAllowed, match="may not be read from registry"):
        check_servers(stream, broker)


def test_a_registry_that_nobody_is_at_is_told(kafka: Brokers, schemas: Registry) -> None:
    nobody = SchemaRegistry("http://127.0.0.1:9")
    with pytest.raises(KafkaDown, match="The registry of its schemas says") as told:
        validate_source(avro_stream(kafka, schemas, "x", registry=nobody))
    assert "http://127.0.0.1:9" in str(told.value)


def test_ports_of_registries_are_those_of_their_schemes() -> None:
    urls = "https://one/x, http://two,http://three:8081"
    assert SchemaRegistry(urls).servers == ("one:443", "two:80", "three:8081")
