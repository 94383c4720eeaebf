"""OpenTelemetry traces of posted events, from the request until their results can be read.

    POST events            ├──────┤
      wait for a batch            ├─────────┤
      batch 17                              ├───────────┤    rows, results, CPU time
      until it is seen                                  ├┤   this process sees the batch: clients can read it

The API makes all spans, so engines need no tracing: the manifest of a batch states when the batch began, when
it was committed, and which events it has read. A request with a ``traceparent`` header continues the trace of
its client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from catalog.errors import CatalogDown
from catalog.store.repositories.batches import BatchRepository
from catalog.values.batch import BatchManifest
from service.errors import InvalidSetting
from service.workspace.workspace import Workspace

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor

#: Maximum number of requests that wait for their batch; beyond it, the traces of the oldest requests end
#: without a batch.
_MOST_WAITING = 10_000
#: Maximum number of the latest batches that are searched for the batch that read an event.
_MOST_BATCHES = 100
_US = 1_000


@dataclass(frozen=True, slots=True)
class _Posted:
    """A request whose events no batch has read yet.

    Attributes:
        stream_id: Stream of the events.
        last: Offset of the last event.
        began_ns: Wall-clock time when the request arrived, ns.
        ended_ns: Wall-clock time when the request was answered, ns.
        context: Context of the trace to which the request's spans belong.
    """

    stream_id: int
    last: int
    began_ns: int
    ended_ns: int
    context: Context


class Traces:
    """Makes and sends traces.

    Args:
        url: Address to which the traces are sent, as OTLP over HTTP.
        processor: Receives the spans instead.

    Raises:
        InvalidSetting: The packages of OpenTelemetry are not installed.
    """

    def __init__(self, url: str, processor: SpanProcessor | None = None) -> None:
        try:
            from opentelemetry import propagate, trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise InvalidSetting(
                'setting "traces_url" needs packages that are not installed',
                detail=f"{error}.",
                hint='Install sluice with its extra "traces", or do not set SLUICE_TRACES_URL.',
            ) from error
        self._trace, self._propagate = trace, propagate
        # OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override the name given here.
        resource = Resource({"service.name": "sluice"}).merge(Resource.create({}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter(url)))
        self._tracer = self._provider.get_tracer("sluice")
        self._waiting: list[_Posted] = []
        self._lock = threading.Lock()

    def accepted(
        self, headers: Mapping[str, str], stream: tuple[int, str], offsets: tuple[int, int], began_ns: int
    ) -> None:
        """Begin the trace of a request to post events, after the events were stored.

        Args:
            headers: Headers of the request.
            stream: Id and name of the stream.
            offsets: Offsets of the first and the last event.
            began_ns: Wall-clock time when the request arrived, ns.
        """
        ended_ns = time.time_ns()
        first, last = offsets
        span = self._tracer.start_span(
            "POST events",
            self._propagate.extract(headers),
            kind=self._trace.SpanKind.SERVER,
            start_time=began_ns,
            attributes={"sluice.stream": stream[1], "sluice.first_offset": first, "sluice.last_offset": last},
        )
        span.end(ended_ns)
        if span.get_span_context().trace_flags.sampled:
            posted = _Posted(stream[0], last, began_ns, ended_ns, self._trace.set_span_in_context(span))
            with self._lock:
                self._waiting = [*self._waiting[-_MOST_WAITING + 1 :], posted]

    async def follow(self, workspace: Workspace) -> None:
        """Make the spans of each batch when it is committed, until cancelled."""
        with workspace.commits.heard() as heard:
            while True:
                await heard.wait()
                heard.clear()
                if self._waiting:
                    await anyio.to_thread.run_sync(self.look, workspace.batches)

    def look(self, batches: BatchRepository) -> None:
        """Make the spans of batches that have read posted events."""
        try:
            last = batches.last()
            manifests = () if last is None else batches.manifests(last - _MOST_BATCHES + 1, last)
        except CatalogDown:
            return  # the next commit tries again
        seen_ns = time.time_ns()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        left = []
        for posted in waiting:
            manifest = next((m for m in manifests if _end(m, posted.stream_id) > posted.last), None)
            if manifest is None:
                left.append(posted)
            elif manifest.committed_at_us * _US > posted.began_ns:  # else they were posted earlier
                self._batch(posted, manifest, seen_ns)
        with self._lock:
            self._waiting = [*left, *self._waiting]

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()

    def _batch(self, posted: _Posted, manifest: BatchManifest, seen_ns: int) -> None:
        began_ns, committed_ns = manifest.started_at_us * _US, manifest.committed_at_us * _US
        self._span("wait for a batch", posted, posted.ended_ns, max(began_ns, posted.ended_ns))
        facts = {
            "sluice.batch": manifest.batch,
            "sluice.plan_version": manifest.plan_version,
            "sluice.rows": sum(stream.rows for stream in manifest.streams),
            "sluice.results": sum(file.rows for file in manifest.files),
            "sluice.pack_cpu_s": manifest.cpu.pack_us / 1e6,
            "sluice.chain_cpu_s": manifest.cpu.chain_us / 1e6,
        }
        self._span(f"batch {manifest.batch}", posted, began_ns, committed_ns, facts)
        self._span("until it is seen", posted, committed_ns, max(seen_ns, committed_ns))

    def _span(
        self, name: str, posted: _Posted, began_ns: int, ended_ns: int, facts: dict[str, Any] | None = None
    ) -> None:
        span = self._tracer.start_span(name, posted.context, start_time=began_ns, attributes=facts)
        span.end(ended_ns)


def _end(manifest: BatchManifest, stream_id: int) -> int:
    """Return the offset after the last event that this batch or an earlier one has read."""
    return dict(manifest.input_end).get(str(stream_id), 0)
