"""Client quotas: measures the usage of each client and throttles those above their quota; quotas on
partitions that are created and deleted.
"""

import asyncio
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Final, Protocol, TypeVar, cast

from kraftsim.events.event import Event
from kraftsim.metadata.events import QuotaInEffect
from kraftsim.metadata.rules_registries import Registries
from kraftsim.server.call import Answer, Call, Closing, Deferred, Encoded, Handler
from kraftsim.server.config import NodeConfig
from kraftsim.server.rules_quotas import (
    ClientLimits,
    ExpiringMap,
    Limit,
    Sharers,
    TokenBucket,
    WindowedRate,
)
from kraftsim.world.interface import Clock, World
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import ProduceRequest
from protocol.messages.k01_fetch import FetchRequest
from protocol.metadata.settings import ClientQuotaRecord
from protocol.requests import decode_response

# --------------------------------------------------------------------------------------------------
# Client quotas: measures the usage of each client and throttles those above their quota
#
# The response is sent at once and contains the throttle time; the channel is then muted for that
# time (KIP-219). Followers are not measured. Bytes are those of record batches: the overhead of
# requests and responses, about a hundred bytes, is not counted.
#
# Source: KIP-13, KIP-124, KIP-219, kafka.server.{ClientQuotaManager, ClientRequestQuotaManager,
# RequestHandlerHelper}.

PRODUCER_BYTES: Final = "producer_byte_rate"
CONSUMER_BYTES: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
THROTTLE_TIME: Final = "throttle_time_ms"
CORRELATION_ID_BYTES: Final = 4
CHANGES_OF_TOPICS: Final = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
FIRST_FETCH_WITH_REPLICA_STATE: Final = 15


class ClientQuotas:
    """The rates of all clients that have quotas. `are_set`: at least one quota is configured."""

    def __init__(self, config: NodeConfig, clock: Clock, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._window_count = config.quota_window_num
        self._window_ms = config.quota_window_size_seconds * 1000
        self._clock = clock
        self._limits = ClientLimits()
        self._rates: ExpiringMap[tuple[str, Sharers], WindowedRate] = ExpiringMap(
            lambda: WindowedRate(self._window_count, self._window_ms)
        )
        self.are_set = False

    def follow(self, records: Iterable[ClientQuotaRecord]) -> None:
        """Apply the quotas of the current metadata."""
        before = {(entity, key): value for entity, key, value in self._limits.values()}
        self._limits = ClientLimits(records)
        self.are_set = bool(self._limits)
        for entity, key, value in self._limits.values():
            if before.pop((entity, key), None) != value:
                self._emit(QuotaInEffect(entity=entity, key=key, value=repr(value)))
        for entity, key in before:
            self._emit(QuotaInEffect(entity=entity, key=key, value=None))

    def throttle(
        self, call: Call, key: str, amount: float, *, pause_max_ms: int | None = None
    ) -> int:
        """Record usage, and return the throttle time in milliseconds; 0 if the client has no such
        quota or is below it.
        """
        limit = self._limit(call, key)
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rates.of((key, limit.sharers), now_ms)
        rate.record(amount, now_ms)
        pause_ms = rate.pause_ms(limit.value, now_ms)
        return pause_ms if pause_max_ms is None else min(pause_ms, pause_max_ms)

    def unrecord(self, call: Call, key: str, amount: float) -> None:
        """Subtract recorded usage that is not sent after all."""
        limit = self._limit(call, key)
        if limit is not None:
            now_ms = self._clock.monotonic_ms()
            self._rates.of((key, limit.sharers), now_ms).record(-amount, now_ms)

    def most_at_once(self, call: Call, key: str) -> int | None:
        """Return the largest amount that a client may use in one request: its quota for all windows
        but one.
        """
        limit = self._limit(call, key) if self.are_set else None
        return (
            None
            if limit is None
            else int(limit.value * (self._window_count - 1) * self._window_ms / 1000)
        )

    def throttle_request(self, call: Call, took_ns: int) -> int:
        """Record the processing time of a request, in percent of one thread."""
        return self.throttle(
            call, REQUEST_PERCENTAGE, took_ns * 100 / 1e9, pause_max_ms=self._window_ms
        )

    def _limit(self, call: Call, key: str) -> Limit | None:
        return self._limits.find(key, call.principal.name, call.client_id or "")


class MeasuringNode(Protocol):
    """A node with client quotas."""

    @property
    def world(self) -> World:
        """The clock that measures processing times."""
        ...

    @property
    def quotas(self) -> ClientQuotas:
        """The rates of its clients."""
        ...


N = TypeVar("N", bound=MeasuringNode)


def throttled(handler: Handler[N]) -> Handler[N]:
    """Wrap a handler so that its responses are measured against request quotas, if there are
    any.
    """
    inner = handler.handle

    def handle(node: N, call: Call) -> Answer | Deferred:
        quotas = node.quotas
        if not quotas.are_set or _is_exempt(call):
            return inner(node, call)
        began_ns = node.world.clock.monotonic_ns()
        answer = inner(node, call)
        took_ns = node.world.clock.monotonic_ns() - began_ns
        if not isinstance(answer, Deferred):
            return _measured(quotas, call, answer, took_ns)
        return _later(answer, lambda given: _measured(quotas, call, given, took_ns))

    return replace(handler, handle=handle)


def _measured(quotas: ClientQuotas, call: Call, answer: Answer, took_ns: int) -> Answer:
    pause_ms = quotas.throttle_request(call, took_ns)
    if isinstance(call.body, ProduceRequest):
        size_bytes = sum(
            len(data.records or b"")
            for topic in call.body.topic_data
            for data in topic.partition_data
        )
        pause_ms = max(pause_ms, quotas.throttle(call, PRODUCER_BYTES, size_bytes))
    if isinstance(answer, Encoded) and call.api_key in CHANGES_OF_TOPICS:
        _, decoded = decode_response(
            call.api_key, call.api_version, bytes(CORRELATION_ID_BYTES) + answer.rest
        )
        pause_ms = max(
            pause_ms, getattr(decoded, THROTTLE_TIME, 0)
        )  # the throttle time that the controller returned
    if pause_ms <= 0 or isinstance(answer, Closing):
        return answer
    mute(call, pause_ms)
    response = copy(answer)
    known_ms = getattr(response, THROTTLE_TIME, None)
    if known_ms is not None:
        setattr(response, THROTTLE_TIME, max(pause_ms, known_ms))
    return response


def _later(inner: Deferred, change: Callable[[Answer], Answer]) -> Deferred:
    """Return a deferred response to which `change` is applied on completion."""
    outer = Deferred()

    def give() -> None:
        assert inner.answer is not None, "called on completion only"
        outer.complete_with(lambda: change(cast(Answer, inner.answer)))

    if inner.answer is not None:
        give()
        return outer
    inner.attach(give)
    outer.when_abandoned(inner.abandon)
    return outer


def _is_exempt(call: Call) -> bool:
    if call.api_key == ApiKey.WRITE_TXN_MARKERS:
        return True
    request = call.body
    if not isinstance(request, FetchRequest):
        return False
    return (
        request.replica_state.replica_id
        if call.api_version >= FIRST_FETCH_WITH_REPLICA_STATE
        else request.replica_id
    ) >= 0


# --------------------------------------------------------------------------------------------------
# Mutes a connection: the throttling of clients above a quota (KIP-219)


def mute(call: Call, pause_ms: int) -> None:
    """Read no requests of a client until the pause is over: later requests wait."""
    connection = call.connection
    connection.pause_writing()
    asyncio.get_running_loop().call_later(pause_ms / 1000, connection.resume_writing)


# --------------------------------------------------------------------------------------------------
# Quotas on created, added and deleted partitions per second (controller_mutation_rate)
#
# Clients that support THROTTLING_QUOTA_EXCEEDED are refused per topic once they exceed their quota;
# older clients are served, and throttled. A topic that is refused for another reason is credited
# back.
# Source: KIP-599, kafka.server.ControllerMutationQuotaManager.

CONTROLLER_MUTATIONS = "controller_mutation_rate"
QUOTA_EXCEEDED = "The throttling quota has been exceeded."


class Allowance:
    """The remaining quota of one request. `pause_ms` is the throttle time of its client."""

    def __init__(
        self, bucket: TokenBucket | None, rate: float, clock: Clock, *, is_strict: bool
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._clock = clock
        self._is_strict = is_strict
        self.pause_ms = 0

    def admits(self, partition_count: int) -> bool:
        """Charge for partitions, and return whether they may be created or deleted."""
        bucket = self._bucket
        if bucket is None:
            return True
        now_ms = self._clock.monotonic_ms()
        if self._is_strict and bucket.tokens(self._rate, now_ms) < 0:
            self.pause_ms = bucket.pause_ms(self._rate, now_ms)
            return False
        bucket.take(partition_count, self._rate, now_ms)
        if not self._is_strict:
            self.pause_ms = bucket.pause_ms(self._rate, now_ms)
        return True

    def give_back(self, partition_count: int) -> None:
        """Credit partitions that were not created or deleted."""
        if self._bucket is not None:
            self._bucket.take(-partition_count, self._rate, self._clock.monotonic_ms())


class MutationQuotas:
    """The token buckets of all clients with such quotas."""

    def __init__(
        self, config: NodeConfig, clock: Clock, registries: Callable[[], Registries]
    ) -> None:
        seconds = config.controller_quota_window_num * config.controller_quota_window_size_seconds
        self._clock = clock
        self._registries = registries
        self._buckets: ExpiringMap[Sharers, TokenBucket] = ExpiringMap(lambda: TokenBucket(seconds))
        self._limits = ClientLimits(())
        self._seen: tuple[Registries, int] | None = None
        """The registries that the limits were read from, and their change count."""

    def allowance(self, call: Call, *, is_strict: bool) -> Allowance:
        """Return the allowance of a request."""
        limit = self._limit(call)
        if limit is None:
            return Allowance(None, 0.0, self._clock, is_strict=is_strict)
        bucket = self._buckets.of(limit.sharers, self._clock.monotonic_ms())
        return Allowance(bucket, limit.value, self._clock, is_strict=is_strict)

    def _limit(self, call: Call) -> Limit | None:
        registries = self._registries()
        if (
            self._seen is None
            or self._seen[0] is not registries
            or self._seen[1] != registries.quota_changes
        ):
            self._seen = registries, registries.quota_changes
            self._limits = ClientLimits(registries.quotas.records())
        limits = self._limits
        return (
            limits.find(CONTROLLER_MUTATIONS, call.principal.name, call.client_id or "")
            if limits
            else None
        )
