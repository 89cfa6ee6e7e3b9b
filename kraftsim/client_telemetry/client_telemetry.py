"""Client telemetry of one broker: subscriptions from its metadata, and a reporter that writes
events.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec

from kraftsim.client_telemetry.events import ClientMetricReported, ClientMetricsPushed
from kraftsim.client_telemetry.rules_client_telemetry import (
    COMPRESSIONS,
    ClientAttributes,
    ClientInstance,
    Push,
    TelemetryMoment,
    TelemetryRules,
)
from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.server.call import Call
from kraftsim.server.identity import random_uuids
from kraftsim.server.shell import NodeShell
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from protocol.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from protocol.otlp_metrics import MetricPoint, parse_metrics
from protocol.records.record import Compression, UndecodableRecords, decompress_in_pieces
from protocol.uuids import uuid_text

PLAIN_BYTES_MAX: Final = 1 << 20
"""Larger metrics are not decoded: one push must not hold up a node."""
UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
NANOSECONDS_PER_MS: Final = 1_000_000


class ClientTelemetry:
    """Exists only on a broker with a reporter. `image` returns the present metadata."""

    apis: ClassVar[Mapping[ApiKey, tuple[int, int]]] = {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
        ApiKey.PUSH_TELEMETRY: (0, 0),
    }
    """The APIs that such a broker has, and their versions."""

    def __init__(
        self, shell: NodeShell, image: Callable[[], MetadataImage], *, ends_instances: bool
    ) -> None:
        self._world = shell.world
        self._image = image
        ids = random_uuids(shell.world, "client instances")
        self._bytes_max = shell.config.telemetry_max_bytes
        self._rules = TelemetryRules(
            lambda: next(ids), self._bytes_max, ends_instances=ends_instances
        )
        self._software: dict[int, tuple[str, str]] = {}
        """By connection."""

    def on_api_versions(self, connection: int, name: str, version: str) -> None:
        """A client has said which software it is."""
        self._software[connection] = (name, version)

    def on_disconnect(self, connection: int) -> None:
        """A connection is closed."""
        self._software.pop(connection, None)
        self._rules.disconnect(connection)

    def subscription(self, call: Call) -> GetTelemetrySubscriptionsResponse:
        """Return what a client is asked to push."""
        asked = call.body
        assert isinstance(asked, GetTelemetrySubscriptionsRequest), "dispatch decodes by API key"
        self._refresh()
        found = self._rules.subscription(
            asked.client_instance_id, self._client(call), call.connection.number, self._now()
        )
        if isinstance(found, Refusal):
            return GetTelemetrySubscriptionsResponse(error_code=found.error)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=found.instance_id,
            subscription_id=found.subscription_id,
            accepted_compression_types=list(COMPRESSIONS),
            push_interval_ms=found.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=True,
            requested_metrics=list(found.metrics),
        )

    def push(self, call: Call) -> PushTelemetryResponse:
        """Take the metrics of a client, or refuse them; INVALID_RECORD: they cannot be decoded."""
        asked = call.body
        assert isinstance(asked, PushTelemetryRequest), "dispatch decodes by API key"
        self._refresh()
        push = Push(
            instance_id=asked.client_instance_id,
            subscription_id=asked.subscription_id,
            is_terminating=asked.terminating,
            compression=asked.compression_type,
            size_bytes=len(asked.metrics),
        )
        client = self._client(call)
        found = self._rules.push(push, client, call.connection.number, self._now())
        if isinstance(found, Refusal):
            return PushTelemetryResponse(error_code=found.error)
        if asked.metrics:
            try:
                points = parse_metrics(_plain(asked))
            except (ValueError, UndecodableRecords):
                found.last_error = ErrorCode.INVALID_RECORD
                return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
            self._report(found, client, push, points)
        return PushTelemetryResponse()

    def _report(
        self,
        instance: ClientInstance,
        client: ClientAttributes,
        push: Push,
        points: list[MetricPoint],
    ) -> None:
        instance_id = uuid_text(instance.instance_id)
        self._world.emit(
            ClientMetricsPushed(
                client_instance_id=instance_id,
                client_id=client["client_id"],
                client_software_name=client["client_software_name"],
                client_software_version=client["client_software_version"],
                client_source_address=client["client_source_address"],
                subscription_id=push.subscription_id,
                compression=push.compression,
                is_terminating=push.is_terminating,
                size_bytes=push.size_bytes,
                point_count=len(points),
            )
        )
        for point in points:
            self._world.emit(
                ClientMetricReported(
                    client_instance_id=instance_id,
                    metric=point.metric,
                    metric_type=point.metric_type,
                    attributes=msgspec.json.encode(point.attributes).decode(),
                    value="" if point.value is None else repr(point.value),
                    count=point.count,
                    is_delta=point.is_delta,
                    start_time_ms=point.start_time_ns // NANOSECONDS_PER_MS,
                    time_ms=point.time_ns // NANOSECONDS_PER_MS,
                )
            )

    def _refresh(self) -> None:
        metrics = ConfigResourceType.CLIENT_METRICS
        self._rules.subscribe(
            {name: values for (kind, name), values in self._image().configs() if kind == metrics}
        )

    def _client(self, call: Call) -> ClientAttributes:
        name, version = self._software.get(call.connection.number, UNKNOWN_SOFTWARE)
        address, _, port = call.connection.peer.rpartition(":")
        return {
            "client_id": call.client_id or "",
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": address.strip("[]"),
            "client_source_port": port,
        }

    def _now(self) -> TelemetryMoment:
        clock = self._world.clock
        return TelemetryMoment(clock.wall_ms(), clock.monotonic_ms())


def _plain(asked: PushTelemetryRequest) -> memoryview:
    """Return the decompressed metrics. Raises UndecodableRecords, and ValueError if they are too
    large.
    """
    if not asked.compression_type:
        return memoryview(asked.metrics)
    pieces, size_bytes = [], 0
    for piece in decompress_in_pieces(Compression(asked.compression_type), asked.metrics):
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > PLAIN_BYTES_MAX:
            raise ValueError(f"more than {PLAIN_BYTES_MAX} bytes of metrics")
    return memoryview(b"".join(pieces))
