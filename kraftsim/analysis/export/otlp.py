"""Traces of OpenTelemetry in OTLP/JSON: one export request per line, as the collector's file
exporter writes and its `otlpjsonfile` receiver reads them.

A resource is one incarnation of a node. A request is two spans: of the node that sends it, until
its response arrives, and below it of the node that serves it. A transaction is a span of its
producer, above the requests that the producer sends while it has no other transaction open.
Source: opentelemetry-proto, trace/v1/trace.proto; OTLP specification, JSON Protobuf Encoding.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import IO, Final, NamedTuple

import msgspec

from kraftsim.analysis.export.scope import NO_CAUSE, LoggedEvent, Scope, api_name
from kraftsim.analysis.sentences import Value
from kraftsim.version import __version__
from protocol.api_keys import ApiKey

KINDS: Final = ("FrameSent", "FrameReceived", "TransactionBegun", "TransactionEnded")
SPANS_PER_LINE: Final = 256
INTERNAL, SERVER, CLIENT = 1, 2, 3
"""Numbers of SpanKind: OTLP/JSON has no names for them."""
STATUS_ERROR: Final = 2
OF_TRANSACTIONS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
Json = None | bool | int | str | list["Json"] | dict[str, "Json"]
Host = tuple[str, int]
"""A node and its incarnation."""
Request = tuple[Host, str, int, int]
"""A request at one end: host, link or peer, connection, correlation id."""


class Span(NamedTuple):
    """A span that has not ended. Ids are positions of events; `trace` is that of its root."""

    host: Host
    span_id: int
    trace_id: int
    parent: int
    name: str
    kind: int
    begin_ns: int
    attributes: dict[str, Value]


def write(scope: Scope, out: IO[bytes]) -> list[str]:
    """Write the spans; each line has spans of one resource."""
    traces = _Traces(_Lines(out), scope.run)
    for event in scope.events(KINDS):
        traces.take(event)
    unfinished = traces.close(scope.end_ns)
    if not unfinished:
        return []
    return [
        f"{unfinished:,} spans have no end in this window: their length is 0, and they have the "
        "attribute kraftsim.unfinished"
    ]


class _Lines:
    """Collects spans by resource, and writes a line when a resource has enough of them."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._waiting: dict[Host, list[Json]] = {}

    def add(self, host: Host, span: Json) -> None:
        """Add a span."""
        waiting = self._waiting.setdefault(host, [])
        waiting.append(span)
        if len(waiting) >= SPANS_PER_LINE:
            self._write(host)

    def close(self) -> None:
        """Write what is left."""
        for host in list(self._waiting):
            self._write(host)

    def _write(self, host: Host) -> None:
        node, incarnation = host
        resource = {
            "service.name": node,
            "service.instance.id": f"{node}.{incarnation}",
            "service.namespace": "kraftsim",
        }
        scope: Json = {"name": "kraftsim", "version": __version__}
        line: Json = {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeSpans": [{"scope": scope, "spans": self._waiting.pop(host)}],
                }
            ]
        }
        self._out.write(msgspec.json.encode(line) + b"\n")


class _Traces:
    """Pairs the ends of requests and transactions, in the order of time."""

    def __init__(self, lines: _Lines, run: str) -> None:
        self._lines = lines
        self._run = sha256(run.encode()).hexdigest()[:16]
        self._sent: dict[Request, Span] = {}
        self._served: dict[Request, Span] = {}
        self._client_span_of: dict[int, Span] = {}
        self._transactions: dict[tuple[Host, str], Span] = {}
        self._origin_ns: int | None = None

    def take(self, event: LoggedEvent) -> None:
        """Take the next event."""
        if self._origin_ns is None:
            # Times of spans are those of the wall clock of the first node.
            self._origin_ns = max(0, event.wall_ms * 1_000_000 - event.t_ns)
        host = event.node, event.incarnation
        if event.kind == "TransactionBegun":
            self._begin_transaction(event, host)
        elif event.kind == "TransactionEnded":
            self._end_transaction(event, host)
        else:
            is_response = event.fields.get("is_response") is True
            end = event.text("link") or event.text("peer")
            request = host, end, event.number("connection"), event.number("correlation_id")
            if event.kind == "FrameSent" and is_response:
                self._end(self._served, request, event)
            elif event.kind == "FrameSent":
                self._send(request, event)
            elif is_response:
                self._end(self._sent, request, event)
            else:
                self._serve(request, event)

    def close(self, end_ns: int) -> int:
        """Write the spans that have no end, and return how many there are."""
        left = [*self._sent.values(), *self._served.values(), *self._transactions.values()]
        for span in left:
            self._finish(span, span.begin_ns, {"kraftsim.unfinished": True})
        self._lines.close()
        return len(left)

    def _send(self, request: Request, event: LoggedEvent) -> None:
        above = self._open_transaction(request[0], event.number("api_key"))
        span = Span(
            host=request[0],
            span_id=event.position,
            trace_id=above.trace_id if above else event.position,
            parent=above.span_id if above else NO_CAUSE,
            name=api_name(event.number("api_key")),
            kind=CLIENT,
            begin_ns=event.t_ns,
            attributes=_of_request(event),
        )
        self._unanswered(self._sent, request)
        self._sent[request] = span
        self._client_span_of[event.position] = span

    def _serve(self, request: Request, event: LoggedEvent) -> None:
        above = self._client_span_of.pop(event.cause, None)
        span = Span(
            host=request[0],
            span_id=event.position,
            trace_id=above.trace_id if above else event.position,
            parent=above.span_id if above else NO_CAUSE,
            name=api_name(event.number("api_key")),
            kind=SERVER,
            begin_ns=event.t_ns,
            attributes=_of_request(event),
        )
        self._unanswered(self._served, request)
        self._served[request] = span

    def _unanswered(self, open_spans: dict[Request, Span], request: Request) -> None:
        """Write a span whose correlation id is used again."""
        span = open_spans.pop(request, None)
        if span is not None:
            self._client_span_of.pop(span.span_id, None)
            self._finish(span, span.begin_ns, {"kraftsim.unfinished": True})

    def _end(self, open_spans: dict[Request, Span], request: Request, event: LoggedEvent) -> None:
        span = open_spans.pop(request, None)
        if span is not None:
            self._client_span_of.pop(span.span_id, None)
            size = {"kraftsim.response.size_bytes": event.number("size_bytes")}
            self._finish(span, event.t_ns, size)

    def _begin_transaction(self, event: LoggedEvent, host: Host) -> None:
        self._transactions[host, event.text("transaction")] = Span(
            host=host,
            span_id=event.position,
            trace_id=event.position,
            parent=NO_CAUSE,
            name=f"transaction {event.text('transactional_id')}",
            kind=INTERNAL,
            begin_ns=event.t_ns,
            attributes={
                "messaging.system": "kafka",
                **{f"kraftsim.{name}": value for name, value in event.fields.items()},
            },
        )

    def _end_transaction(self, event: LoggedEvent, host: Host) -> None:
        span = self._transactions.pop((host, event.text("transaction")), None)
        if span is not None:
            outcome, code = event.text("outcome"), event.number("error_code")
            more: dict[str, Value] = {"kraftsim.outcome": outcome, "kraftsim.error_code": code}
            error = f"{outcome}, error {code}" if code or outcome == "unknown" else ""
            self._finish(span, event.t_ns, more, error=error)

    def _open_transaction(self, host: Host, api_key: int) -> Span | None:
        if api_key not in OF_TRANSACTIONS:
            return None
        spans = [span for (place, _), span in self._transactions.items() if place == host]
        return spans[0] if len(spans) == 1 else None

    def _finish(
        self, span: Span, end_ns: int, more: Mapping[str, Value], *, error: str = ""
    ) -> None:
        origin_ns = self._origin_ns or 0
        written: dict[str, Json] = {
            "traceId": f"{self._run}{span.trace_id + 1:016x}",
            "spanId": f"{span.span_id + 1:016x}",
            "parentSpanId": f"{span.parent + 1:016x}" if span.parent != NO_CAUSE else "",
            "name": span.name,
            "kind": span.kind,
            "startTimeUnixNano": str(origin_ns + span.begin_ns),
            "endTimeUnixNano": str(origin_ns + end_ns),
            "attributes": _attributes({**span.attributes, **more}),
            "status": {"code": STATUS_ERROR, "message": error} if error else {},
        }
        self._lines.add(span.host, written)


def _of_request(event: LoggedEvent) -> dict[str, Value]:
    return {
        "messaging.system": "kafka",
        "network.peer.address": event.text("peer"),
        "kraftsim.event": event.event_id,
        "kraftsim.request.size_bytes": event.number("size_bytes"),
        "kraftsim.api_key": event.number("api_key"),
        "kraftsim.api_version": event.number("api_version"),
        "kraftsim.correlation_id": event.number("correlation_id"),
    }


def _attributes(values: Mapping[str, Value]) -> list[Json]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # a 64-bit integer of Protobuf is a text in JSON
    return {"stringValue": value}
