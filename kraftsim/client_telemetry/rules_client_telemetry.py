"""What a client is asked to push, and which pushes are accepted.

Source: KIP-714, org.apache.kafka.server.ClientMetricsManager,
org.apache.kafka.server.metrics.{ClientMetricsInstance, ClientMetricsInstanceMetadata}.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kraftsim.core.decision import Refusal
from kraftsim.core.expressions import Expression, InvalidExpression, client_expression
from kraftsim.groups.rules_assignors import growing_set_order, hash_set_order
from kraftsim.groups.rules_timing import java_hash
from kraftsim.metadata.rules_config_definitions import java_split
from protocol.errors import ErrorCode
from protocol.otlp_metrics import checksum_of_text
from protocol.uuids import uuid_text

DEFAULT_INTERVAL_MS: Final = 300_000
ALL_METRICS: Final = "*"
INSTANCES_MAX: Final = 16_384
EXPIRY_MS: Final = 60_000
INTERVALS_UNTIL_EXPIRY: Final = 3
ZERO_ID: Final = bytes(16)
RESERVED_IDS: Final = frozenset({ZERO_ID, ZERO_ID[:-1] + b"\x01"})
COMPRESSIONS: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: in the order of preference; a push may have none (0), too."""
RETRIED_AT_ONCE: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)
"""After these a client may ask for its subscription before the interval is over."""
ClientAttributes: TypeAlias = Mapping[str, str]
"""client_instance_id, client_id, client_software_name, client_software_version,
client_source_address and client_source_port, as far as they are known.
"""


class TelemetryMoment(NamedTuple):
    """Both clocks: intervals use the wall clock, expiry the monotonic one."""

    wall_ms: int
    monotonic_ms: int


# --------------------------------------------------------------------------------------------------
# Subscriptions


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription. `patterns`: attribute -> expression; None never matches."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Expression | None]

    def matches(self, client: ClientAttributes) -> bool:
        """Return whether a client has all the attributes that it names; without patterns every
        client matches.
        """
        return all(
            expression is not None
            and name in client
            and expression.fullmatch(client[name]) is not None
            for name, expression in self.patterns.items()
        )


def subscription_of(configs: Mapping[str, str]) -> Subscription:
    """Parse the values of a subscription, which the controller has validated."""
    patterns = {}
    for pattern in _elements(configs.get("match", "")):
        name, text = java_split(pattern, "=")
        patterns[name.strip()] = _expression(text.strip())
    return Subscription(
        tuple(hash_set_order(dict.fromkeys(_elements(configs.get("metrics", ""))), java_hash)),
        int(configs.get("interval.ms", DEFAULT_INTERVAL_MS)),
        patterns,
    )


def _elements(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _expression(text: str) -> Expression | None:
    try:
        return client_expression(text)
    except InvalidExpression:
        return None


def subscription_id_of(metrics: Iterable[str], interval_ms: int, instance_id: bytes) -> int:
    """Return the id of what an instance is asked for, as a signed 32-bit number."""
    text = f"[{', '.join(metrics)}]{interval_ms}"
    mixed = int.from_bytes(instance_id[:8]) ^ int.from_bytes(instance_id[8:])
    hashed = (mixed >> 32) ^ (mixed & 0xFFFF_FFFF) ^ checksum_of_text(text)
    return hashed - 2**32 if hashed >= 2**31 else hashed


# --------------------------------------------------------------------------------------------------
# Instances


@dataclass(slots=True, kw_only=True)
class ClientInstance:
    """A client: what it is asked for, and when it was heard last. Times are wall-clock
    milliseconds.
    """

    instance_id: bytes
    client: ClientAttributes
    subscription_id: int
    subscription_version: int
    metrics: tuple[str, ...]
    interval_ms: int
    asked_ms: int = 0
    pushed_ms: int = 0
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    expires_ms: int = 0
    """By the monotonic clock."""

    def may_ask(self, wall_ms: int) -> bool:
        """Return whether an interval has passed since the last request, and count this one."""
        if wall_ms - max(self.asked_ms, self.pushed_ms) < self.interval_ms:
            return False
        self.asked_ms = wall_ms
        return True

    def may_push(self, wall_ms: int) -> bool:
        """Return whether it has asked since its last push, or an interval has passed, and count
        this push.
        """
        if self.asked_ms <= self.pushed_ms and wall_ms - self.pushed_ms < self.interval_ms:
            return False
        self.pushed_ms = wall_ms
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """The fields of a PushTelemetry request that decide about it."""

    instance_id: bytes
    subscription_id: int
    is_terminating: bool
    compression: int
    size_bytes: int


class TelemetryRules:
    """The instances of one broker. `new_id` draws an instance id, `bytes_max` is
    telemetry.max.bytes.

    `ends_instances`: an instance ends with its connection, and after some errors it need not wait
    for its interval (since 4.0).
    """

    def __init__(
        self, new_id: Callable[[], bytes], bytes_max: int, *, ends_instances: bool
    ) -> None:
        self._ends_instances = ends_instances
        self._new_id = new_id
        self._bytes_max = bytes_max
        self._subscriptions: Mapping[str, Subscription] = {}
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._version = 0
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        """Least recently used first."""
        self._by_connection: dict[int, bytes] = {}

    def subscribe(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Set all subscriptions: name -> its values."""
        if configs == self._configs:
            return
        self._configs = configs
        self._subscriptions = {name: subscription_of(configs[name]) for name in sorted(configs)}
        self._version += 1

    def subscription(
        self, asked_id: bytes, client: ClientAttributes, connection: int, now: TelemetryMoment
    ) -> ClientInstance | Refusal:
        """Return what a client is asked for; an id of zeros asks for a new one.

        Fails with THROTTLING_QUOTA_EXCEEDED before the interval is over.
        """
        instance_id = self._fresh_id() if asked_id == ZERO_ID else asked_id
        instance = self._instance(instance_id, client, connection, now)
        is_retried = self._ends_instances and instance.last_error in RETRIED_AT_ONCE
        if not instance.may_ask(now.wall_ms) and not is_retried:
            return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self, push: Push, client: ClientAttributes, connection: int, now: TelemetryMoment
    ) -> ClientInstance | Refusal:
        """Accept a push, or return why not.

        Fails with INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
        UNSUPPORTED_COMPRESSION_TYPE or TELEMETRY_TOO_LARGE.
        """
        if push.instance_id in RESERVED_IDS:
            return Refusal(ErrorCode.INVALID_REQUEST)
        instance = self._instance(push.instance_id, client, connection, now)
        refusal = self._refuse(push, instance, now.wall_ms)
        instance.is_terminating = push.is_terminating
        if refusal is not None:
            instance.last_error = refusal.error
            return refusal
        instance.last_error = ErrorCode.NONE
        return instance

    def disconnect(self, connection: int) -> None:
        """Forget the instance that began on a connection."""
        instance_id = self._by_connection.pop(connection, None)
        if instance_id is not None and self._ends_instances:
            self._instances.pop(instance_id, None)

    def _refuse(self, push: Push, instance: ClientInstance, wall_ms: int) -> Refusal | None:
        if instance.is_terminating:
            return Refusal(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(wall_ms) and not push.is_terminating:
            return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if push.subscription_id != instance.subscription_id:
            return Refusal(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.compression not in (0, *COMPRESSIONS):
            return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if push.size_bytes > self._bytes_max:
            return Refusal(ErrorCode.TELEMETRY_TOO_LARGE)
        return None

    def _fresh_id(self) -> bytes:
        while (drawn := self._new_id()) in self._instances:
            pass
        return drawn

    def _instance(
        self, instance_id: bytes, client: ClientAttributes, connection: int, now: TelemetryMoment
    ) -> ClientInstance:
        """Return an instance; it is created if it is unknown, silent for too long, or has an
        older subscription.
        """
        found = self._instances.get(instance_id)
        if found is not None and found.expires_ms <= now.monotonic_ms:
            found = None
        if found is None or found.subscription_version < self._version:
            attributes = (
                {**client, "client_instance_id": uuid_text(instance_id)}
                if found is None
                else found.client
            )
            found = self._instances[instance_id] = self._made(instance_id, attributes)
            self._by_connection[connection] = instance_id
        self._instances.move_to_end(instance_id)
        while len(self._instances) > INSTANCES_MAX:
            self._instances.popitem(last=False)
        found.expires_ms = now.monotonic_ms + max(
            EXPIRY_MS, found.interval_ms * INTERVALS_UNTIL_EXPIRY
        )
        return found

    def _made(self, instance_id: bytes, client: ClientAttributes) -> ClientInstance:
        matching = [each for each in self._subscriptions.values() if each.matches(client)]
        names = dict.fromkeys(name for each in matching for name in each.metrics)
        metrics = (
            (ALL_METRICS,) if ALL_METRICS in names else tuple(growing_set_order(names, java_hash))
        )
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        interval_ms = min(interval_ms, DEFAULT_INTERVAL_MS)
        return ClientInstance(
            instance_id=instance_id,
            client=client,
            subscription_id=subscription_id_of(metrics, interval_ms, instance_id),
            subscription_version=self._version,
            metrics=metrics,
            interval_ms=interval_ms,
        )
