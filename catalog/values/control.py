"""Control log: plan versions and messages about streams, which reach every bucket as input rows."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.values.plan import Plan


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Message that moves an idle stream's watermark to ``watermark_us``.

    The watermark moves after the batch that reads the record has processed its rows. If ``watermark_us`` is
    None, the watermark is reset before these rows; from then on, only rows of this batch and of later batches
    determine it.
    """

    stream_id: int
    watermark_us: int | None


@dataclass(frozen=True, slots=True)
class Promises:
    """Punctuations outside the event log; they take effect after the rows of the batch that reads them.

    Attributes:
        stream_id: The stream.
        on: Columns whose values the punctuations fix.
        rows: Values of these columns, as an Arrow IPC stream in base 64.
    """

    stream_id: int
    on: tuple[str, ...]
    rows: str


@dataclass(frozen=True, slots=True)
class Pull:
    """Request for all result punctuations that are ready; the batch that reads the record emits them.

    Attributes:
        query_id: Id of a query of the family that emits them.
        stream_id: Stream of the family's side a.
    """

    query_id: int
    stream_id: int


@dataclass(frozen=True, slots=True)
class Horizon:
    """Event time below which the rows that earlier batches read from a stream leave the state.

    These rows join no row of the batch that reads this record, and no later row.

    Attributes:
        stream_id: The stream.
        time_us: The horizon, µs UTC.
    """

    stream_id: int
    time_us: int


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One entry of the control log, an input row of every bucket.

    Attributes:
        seq: Position in the log: 1, 2, ... without gaps, in commit order.
        at_batch: First batch that may read the entry, for an entry of a script; None for the next batch.
        plan: The plan version that takes effect, if the entry is a plan change.
        heartbeat: A heartbeat.
        promises: Punctuations.
        pull: A request for result punctuations.
        horizon: A horizon. Exactly one of the five fields after ``at_batch`` is set; the others are None.
    """

    seq: int
    at_batch: int | None = None
    plan: Plan | None = None
    heartbeat: Heartbeat | None = None
    promises: Promises | None = None
    pull: Pull | None = None
    horizon: Horizon | None = None

    def __post_init__(self) -> None:
        if [self.plan, self.heartbeat, self.promises, self.pull, self.horizon].count(None) != 4:
            raise ValueError(
                "a control record carries either a plan, a heartbeat, promises, a pull or a horizon"
            )
