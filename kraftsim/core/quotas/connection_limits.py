"""Connection limits of a node: number and rate of connections, in total, per listener, and per IP.

Above the number or rate of the node or a listener, a new connection waits. Above the number of an
IP it is closed at once. Above the rate of an IP it is closed after a delay. Other brokers connect
where clients must wait, if they have their own listener.

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
