"""How many connections a node lets in, and how fast they may come: altogether, through one listener, and from one address.

Too many, or too fast through a door: whoever knocks waits. Too many from one address: it is turned away at once. Too fast from one address: it is
turned away after a while. Other brokers come in where clients must wait, if they have a listener of their own.

Source: KIP-402, KIP-612, kafka.network.ConnectionQuotas, QuotaUtils.boundedThrottleTime.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.core.metadata.broker_configs import BrokerSettings
from kraftsim.core.metadata.client_quotas import IP
from kraftsim.core.metadata.config_tables import LISTENER_PREFIX
from kraftsim.core.quotas.windowed_rate import WindowedRate
from protocol.metadata.m14_client_quota import ClientQuotaRecord

UNLIMITED: Final = 2**31 - 1
CREATION_RATE: Final = "connection_creation_rate"
CONNECTIONS, RATE = "max.connections", "max.connection.creation.rate"
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Of a node, or of one of its listeners."""

    connections_max: int = UNLIMITED
    rate_max: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """What a node's settings say. `protected`: the listener of other brokers, if there is another one, too."""

    node: DoorLimits = DoorLimits()
    listeners: Mapping[str, DoorLimits] = field(default_factory=dict)
    per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    protected: str | None = None


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The connection is to be closed, `after_ms` from now."""

    after_ms: int


def connection_settings(settings: BrokerSettings, listeners: Iterable[str], inter_broker_listener: str) -> ConnectionSettings:
    """Return what the settings of a node say of its connections."""
    names = tuple(listeners)

    def limits(prefix: str = "") -> DoorLimits:
        return DoorLimits(*(int(settings.value(prefix + key) or UNLIMITED) for key in (CONNECTIONS, RATE)))

    overrides = (each.rpartition(":") for each in (settings.value(OVERRIDES) or "").split(",") if each.strip())
    return ConnectionSettings(
        node=limits(),
        listeners={name: limits(f"{LISTENER_PREFIX}{name.lower()}.") for name in names},
        per_ip=int(settings.value(PER_IP) or UNLIMITED),
        per_ip_overrides={host.strip(): int(count) for host, _, count in overrides},
        protected=inter_broker_listener if inter_broker_listener in names and len(names) > 1 else None,
    )


class ConnectionLimits:
    """Counts who is in. Whoever knocks: `pause_ms` once; when that is over and `has_room`, `enter`; at the end `leave`."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._settings = ConnectionSettings()
        self._ip_rates: dict[str | None, float] = {}
        """How fast connections may come from an address; None: from any that has no limit of its own."""
        self._node_rate = self._new_rate()
        self._listener_rates: dict[str, WindowedRate] = {}
        self._from_ips: dict[str, WindowedRate] = {}
        self._total = 0
        self._through: Counter[str] = Counter()
        self._of_ips: Counter[str] = Counter()

    def follow(self, settings: ConnectionSettings) -> None:
        """Let other settings hold."""
        self._settings = settings

    def follow_ips(self, records: Iterable[ClientQuotaRecord]) -> None:
        """Let the quotas of addresses hold that the metadata have now."""
        self._ip_rates = {
            part.entity_name: record.value for record in records if record.key == CREATION_RATE for part in record.entity if part.entity_type == IP
        }
        self._from_ips = {ip: rate for ip, rate in self._from_ips.items() if self._ip_limit(ip) is not None}

    def pause_ms(self, listener: str, now_ms: int) -> int:
        """Count a connection that knocks at a listener, and return for how long it has to wait, whatever else."""
        settings = self._settings
        pause_ms = 0
        if listener != settings.protected:
            pause_ms = self._count(self._node_rate, settings.node.rate_max, now_ms)
        rate = self._listener_rates.setdefault(listener, self._new_rate())
        return max(pause_ms, self._count(rate, self._limits_of(listener).rate_max, now_ms))

    def has_room(self, listener: str) -> bool:
        """Tell whether one more may come in through a listener."""
        if self._through[listener] >= self._limits_of(listener).connections_max:
            return False
        return listener == self._settings.protected or self._total < self._settings.node.connections_max

    def enter(self, listener: str, ip: str, now_ms: int) -> TurnedAway | None:
        """Let a connection in and count it; or say that it is turned away, and then it does not count."""
        limit = self._ip_limit(ip)
        if limit is not None:
            rate = self._from_ips.setdefault(ip, self._new_rate())
            pause_ms = self._count(rate, limit, now_ms)
            if pause_ms > 0:
                rate.record(-1, now_ms)
                return TurnedAway(pause_ms)
        if self._of_ips[ip] >= self._settings.per_ip_overrides.get(ip, self._settings.per_ip):
            return TurnedAway(0)
        self._of_ips[ip] += 1
        self._through[listener] += 1
        self._total += 1
        return None

    def leave(self, listener: str, ip: str) -> None:
        """A connection that was let in is gone."""
        assert self._of_ips[ip] > 0 and self._through[listener] > 0, "it was counted when it came in"
        self._of_ips[ip] -= 1
        if not self._of_ips[ip]:
            del self._of_ips[ip]
        self._through[listener] -= 1
        self._total -= 1

    @property
    def are_too_many(self) -> bool:
        """Whether another broker came in where there was no room: somebody else has to go."""
        return self._settings.protected is not None and self._total > self._settings.node.connections_max

    def may_go(self, listener: str) -> bool:
        """Tell whether connections through a listener make room for other brokers."""
        return listener != self._settings.protected

    def _ip_limit(self, ip: str) -> float | None:
        return self._ip_rates.get(ip, self._ip_rates.get(None))

    def _limits_of(self, listener: str) -> DoorLimits:
        return self._settings.listeners.get(listener, DoorLimits())

    def _count(self, rate: WindowedRate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        if limit <= 0:
            return self._window_ms
        return min(rate.pause_ms(limit, now_ms), self._window_ms)

    def _new_rate(self) -> WindowedRate:
        return WindowedRate(self._window_count, self._window_ms)
