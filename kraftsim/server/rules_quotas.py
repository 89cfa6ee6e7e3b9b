"""Quotas and limits of clients: which quota applies, the measured rates and buckets, and the limits
of connections.

Source: KIP-13, KIP-55, KIP-402, KIP-546, KIP-599, KIP-612, kafka.server.{ClientQuotaManager,
ControllerMutationQuotaManager}, kafka.network.ConnectionQuotas.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from kraftsim.metadata.rules_client_quotas import CLIENT_ID, IP, USER
from kraftsim.metadata.rules_config_releases import LISTENER_PREFIX
from kraftsim.metadata.rules_described_configs import BrokerSettings
from protocol.metadata.settings import ClientQuotaRecord

ANY: Final = ""
"""Instead of a name: the quota has no such part."""
DEFAULT: Final = None
"""Instead of a name: the default of entities without their own quota."""
Part = str | None
Sharers = tuple[str, str]
"""User and client id; '' if all share the limit."""


# --------------------------------------------------------------------------------------------------
# The quota of a client, by user and client id: the most specific one that is set, and the clients
# that share it
#
# Source: ClientQuotaManager.DefaultQuotaCallback.


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit per second, for all of `sharers` together."""

    value: float
    sharers: Sharers


class ClientLimits:
    """The quotas that are set in the metadata."""

    def __init__(self, records: Iterable[ClientQuotaRecord] = ()) -> None:
        self._tables: dict[str, dict[tuple[Part, Part], float]] = {}
        for record in records:
            names = {part.entity_type: part.entity_name for part in record.entity}
            if names.keys() <= {USER, CLIENT_ID}:
                self._tables.setdefault(record.key, {})[
                    names.get(USER, ANY), names.get(CLIENT_ID, ANY)
                ] = record.value

    def __bool__(self) -> bool:
        return bool(self._tables)

    def values(self) -> Iterator[tuple[str, str, float]]:
        """Yield entity, key and value of each quota, with the entity as in ClientQuotaChanged."""
        for key, table in self._tables.items():
            for (user, client_id), value in table.items():
                parts = ((CLIENT_ID, client_id), (USER, user))
                entity = ",".join(f"{kind}={name or ''}" for kind, name in parts if name != ANY)
                yield entity, key, value

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if it has none."""
        table = self._tables.get(key)
        if table is None:
            return None
        for user_part in (user, DEFAULT, ANY):
            for client_part in (client_id, DEFAULT, ANY):
                value = table.get((user_part, client_part))
                if value is not None:
                    return Limit(
                        value,
                        ("" if user_part == ANY else user, "" if client_part == ANY else client_id),
                    )
        return None


# --------------------------------------------------------------------------------------------------
# A rate over recent windows, and the throttle time that brings it back to its limit
#
# Source: org.apache.kafka.common.metrics.stats.{SampledStat, Rate, SimpleRate},
# kafka.server.QuotaUtils.


@dataclass(slots=True)
class Window:
    """The amount recorded since a time."""

    started_ms: int
    last_ms: int
    amount: float = 0.0


class WindowedRate:
    """Amounts per second over `window_count` windows of `window_ms`; a younger rate is measured
    over all but one of them.
    """

    __slots__ = ("_window_count", "_window_ms", "_windows")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[Window] = deque(maxlen=window_count)

    @property
    def last_ms(self) -> int:
        """The time of the last record; 0 without any."""
        return self._windows[-1].last_ms if self._windows else 0

    def record(self, amount: float, now_ms: int) -> None:
        """Record an amount; a negative one reverts a former one."""
        if not self._windows or now_ms - self._windows[-1].started_ms >= self._window_ms:
            self._windows.append(Window(now_ms, now_ms))
        window = self._windows[-1]
        window.amount += amount
        window.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Return the amount per second."""
        while (
            self._windows
            and now_ms - self._windows[0].last_ms >= self._window_count * self._window_ms
        ):
            self._windows.popleft()
        return sum(window.amount for window in self._windows) * 1000 / self.span_ms(now_ms)

    def span_ms(self, now_ms: int) -> int:
        """Return the measured time span."""
        elapsed_ms = self._elapsed_ms(now_ms)
        full_count = elapsed_ms // self._window_ms
        missing_count = max(self._window_count - 1 - full_count, 0)
        return elapsed_ms + missing_count * self._window_ms

    def pause_ms(self, limit: float, now_ms: int) -> int:
        """Return the idle milliseconds after which the rate is at its limit; 0 if it is not above
        it.
        """
        rate = self.measure(now_ms)
        return (
            math.floor((rate - limit) / limit * self.span_ms(now_ms) + 0.5) if rate > limit else 0
        )

    def _elapsed_ms(self, now_ms: int) -> int:
        return now_ms - self._windows[0].started_ms if self._windows else 0


class SteadyRate(WindowedRate):
    """Measured since the first record in the windows, and over at least one window: so it does not
    admit ten seconds' worth at once.

    Source: org.apache.kafka.common.metrics.stats.SimpleRate.
    """

    __slots__ = ()

    def span_ms(self, now_ms: int) -> int:
        """Return the measured time span."""
        return max(self._elapsed_ms(now_ms), self._window_ms)


# --------------------------------------------------------------------------------------------------
# Connections: their number and rate, in total, per listener, and per IP
#
# Above the number or rate of the node or a listener, a new connection waits. Above the number of an
# IP it is closed at once. Above the rate of an IP it is closed after a delay. Other brokers connect
# where clients must wait, if they have their own listener.
# Source: ConnectionQuotas, QuotaUtils.boundedThrottleTime.

UNLIMITED: Final = 2**31 - 1
CREATION_RATE: Final = "connection_creation_rate"
CONNECTIONS, RATE = "max.connections", "max.connection.creation.rate"
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"


@dataclass(frozen=True, slots=True)
class AcceptorLimits:
    """The limits of a node, or of one of its listeners."""

    connections_max: int = UNLIMITED
    rate_max: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The connection settings of a node.

    `protected`: the inter-broker listener, if there is another one, too.
    """

    node: AcceptorLimits = AcceptorLimits()
    listeners: Mapping[str, AcceptorLimits] = field(default_factory=dict)
    per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    protected: str | None = None


@dataclass(frozen=True, slots=True)
class RejectedConnection:
    """The connection is to be closed, `after_ms` from now."""

    after_ms: int


def connection_settings(
    settings: BrokerSettings, listeners: Iterable[str], inter_broker_listener: str
) -> ConnectionSettings:
    """Return the connection settings of a node."""
    names = tuple(listeners)

    def limits(prefix: str = "") -> AcceptorLimits:
        return AcceptorLimits(
            *(int(settings.value(prefix + key) or UNLIMITED) for key in (CONNECTIONS, RATE))
        )

    overrides = (
        each.rpartition(":")
        for each in (settings.value(OVERRIDES) or "").split(",")
        if each.strip()
    )
    return ConnectionSettings(
        node=limits(),
        listeners={name: limits(f"{LISTENER_PREFIX}{name.lower()}.") for name in names},
        per_ip=int(settings.value(PER_IP) or UNLIMITED),
        per_ip_overrides={host.strip(): int(count) for host, _, count in overrides},
        protected=inter_broker_listener
        if inter_broker_listener in names and len(names) > 1
        else None,
    )


class ConnectionLimits:
    """Counts connections.

    For each new one call `pause_ms` once; after that time and with `has_room`, `enter`; at the end
    `leave`.
    """

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._settings = ConnectionSettings()
        self._ip_rates: dict[str | None, float] = {}
        """The connection rate limit per IP; None: the default of IPs."""
        self._node_rate = self._new_rate()
        self._listener_rates: dict[str, WindowedRate] = {}
        self._from_ips: dict[str, WindowedRate] = {}
        self._total = 0
        self._through: Counter[str] = Counter()
        self._of_ips: Counter[str] = Counter()

    def follow(self, settings: ConnectionSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings

    def follow_ips(self, records: Iterable[ClientQuotaRecord]) -> None:
        """Use the IP quotas of the metadata from now on."""
        self._ip_rates = {
            part.entity_name: record.value
            for record in records
            if record.key == CREATION_RATE
            for part in record.entity
            if part.entity_type == IP
        }
        self._from_ips = {
            ip: rate for ip, rate in self._from_ips.items() if self._ip_limit(ip) is not None
        }

    def pause_ms(self, listener: str, now_ms: int) -> int:
        """Count a new connection at a listener, and return the time it has to wait in any case."""
        settings = self._settings
        pause_ms = 0
        if listener != settings.protected:
            pause_ms = self._count(self._node_rate, settings.node.rate_max, now_ms)
        rate = self._listener_rates.setdefault(listener, self._new_rate())
        return max(pause_ms, self._count(rate, self._limits_of(listener).rate_max, now_ms))

    def has_room(self, listener: str) -> bool:
        """Return whether a listener may accept one more connection."""
        if self._through[listener] >= self._limits_of(listener).connections_max:
            return False
        return (
            listener == self._settings.protected
            or self._total < self._settings.node.connections_max
        )

    def enter(self, listener: str, ip: str, now_ms: int) -> RejectedConnection | None:
        """Accept and count a connection; or return that it is to be closed, uncounted."""
        limit = self._ip_limit(ip)
        if limit is not None:
            rate = self._from_ips.setdefault(ip, self._new_rate())
            pause_ms = self._count(rate, limit, now_ms)
            if pause_ms > 0:
                rate.record(-1, now_ms)
                return RejectedConnection(pause_ms)
        if self._of_ips[ip] >= self._settings.per_ip_overrides.get(ip, self._settings.per_ip):
            return RejectedConnection(0)
        self._of_ips[ip] += 1
        self._through[listener] += 1
        self._total += 1
        return None

    def leave(self, listener: str, ip: str) -> None:
        """An accepted connection was closed."""
        assert self._of_ips[ip] > 0 and self._through[listener] > 0, "it was counted when accepted"
        self._of_ips[ip] -= 1
        if not self._of_ips[ip]:
            del self._of_ips[ip]
        self._through[listener] -= 1
        self._total -= 1

    @property
    def are_too_many(self) -> bool:
        """Whether another broker connected above the limit: a client connection has to be
        closed.
        """
        return (
            self._settings.protected is not None
            and self._total > self._settings.node.connections_max
        )

    def may_go(self, listener: str) -> bool:
        """Return whether connections of a listener are closed to make room for other brokers."""
        return listener != self._settings.protected

    def _ip_limit(self, ip: str) -> float | None:
        return self._ip_rates.get(ip, self._ip_rates.get(None))

    def _limits_of(self, listener: str) -> AcceptorLimits:
        return self._settings.listeners.get(listener, AcceptorLimits())

    def _count(self, rate: WindowedRate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        if limit <= 0:
            return self._window_ms
        return min(rate.pause_ms(limit, now_ms), self._window_ms)

    def _new_rate(self) -> WindowedRate:
        return WindowedRate(self._window_count, self._window_ms)


# --------------------------------------------------------------------------------------------------
# A token bucket that may be overdrawn: a client that overdraws it waits for the rest
#
# Source: KIP-599, org.apache.kafka.common.metrics.stats.TokenBucket.


class TokenBucket:
    """Starts full."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        """The capacity is the rate times this many seconds."""
        self._tokens = math.inf
        self._updated_ms = 0

    @property
    def last_ms(self) -> int:
        """The time of the last use; 0 if never used."""
        return self._updated_ms

    def tokens(self, rate: float, now_ms: int) -> float:
        """Return the number of tokens; negative if overdrawn."""
        self._tokens = min(
            self._tokens + rate * (now_ms - self._updated_ms) / 1000, rate * self._seconds
        )
        self._updated_ms = now_ms
        return self._tokens

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        """Take tokens, or return them with a negative amount."""
        self._tokens = min(self.tokens(rate, now_ms) - amount, rate * self._seconds)

    def pause_ms(self, rate: float, now_ms: int) -> int:
        """Return the milliseconds until it is not overdrawn any more; 0 if it is not."""
        return max(math.floor(-self.tokens(rate, now_ms) * 1000 / rate + 0.5), 0)


# --------------------------------------------------------------------------------------------------
# Measurements of each client. Clients choose their ids, so unused ones are removed after an hour
#
# Source: ClientQuotaManagerConfig.InactiveSensorExpirationTimeSeconds.


class Measured(Protocol):
    """A rate or a bucket."""

    @property
    def last_ms(self) -> int:
        """The time of the last use."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Measured)
IDLE_MS: Final = 3_600_000
TIDY_MIN: Final = 1000
"""With fewer entries expiry is not checked."""


class ExpiringMap(Generic[K, V]):
    """One V for each key.

    Expiry visits all entries, so it runs when their number has doubled since the last run.
    """

    __slots__ = ("_found", "_new", "_tidy_at")

    def __init__(self, new: Callable[[], V]) -> None:
        self._new = new
        self._found: dict[K, V] = {}
        self._tidy_at = TIDY_MIN

    def __len__(self) -> int:
        return len(self._found)

    def of(self, key: K, now_ms: int) -> V:
        """Return the value of a key, a new one if there is none."""
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= self._tidy_at:
                self._found = {
                    known: each
                    for known, each in self._found.items()
                    if now_ms - each.last_ms < IDLE_MS
                }
                self._tidy_at = max(2 * len(self._found), TIDY_MIN)
            found = self._found[key] = self._new()
        return found

    def clear(self) -> None:
        """Remove all."""
        self._found.clear()
        self._tidy_at = TIDY_MIN
