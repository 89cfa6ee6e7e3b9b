"""The designs that are compared, by name.

Source: KIP-98 and KIP-360 (released before and since 2.5), KIP-890 (both versions of transactions),
KIP-758, the lease_pid draft.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.clients.rules_producer_variants import WindowedProducer
from kraftsim.lab.comparison.plan import EXPIRE_MS

EXPIRY: Final = {
    "producer.id.expiration.ms": str(EXPIRE_MS),
    "producer.id.expiration.check.interval.ms": "500",
}


class Writing(Enum):
    """How an application writes."""

    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    LEASING = "leasing"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One design.

    `settings` are those of its brokers; `features` are levels that differ from the defaults of the
    release, by name.
    """

    name: str
    title: str
    writing: Writing
    release: str = "3.9"
    features: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rules: type[IdempotentProducer] = IdempotentProducer
    producer: ProducerSettings = field(
        default_factory=lambda: ProducerSettings(
            linger_ms=0, retry_backoff_ms=50, request_timeout_ms=3000
        )
    )


SYSTEMS: Final = (
    System(
        name="kafka-before-2.5",
        title="Kafka, idempotent, before 2.5: unknown producers are refused (59)",
        writing=Writing.IDEMPOTENT,
        settings={**EXPIRY, "kraftsim.unknown.producer": "unknown-producer-id"},
    ),
    System(
        name="kafka-since-2.5",
        title="Kafka, idempotent, since 2.5: unknown producers are accepted",
        writing=Writing.IDEMPOTENT,
        settings=EXPIRY,
    ),
    System(
        name="kafka-transactions-3.9",
        title="Kafka, transactions of 3.9, which has no versions",
        writing=Writing.TRANSACTIONAL,
        settings=EXPIRY,
    ),
    System(
        name="kafka-transactions-1",
        title="Kafka, transactions of version 1 (4.1)",
        writing=Writing.TRANSACTIONAL,
        release="4.1",
        features={"transaction.version": 1},
        settings=EXPIRY,
    ),
    System(
        name="kafka-transactions-2",
        title="Kafka, transactions of version 2 (4.1)",
        writing=Writing.TRANSACTIONAL,
        release="4.1",
        settings=EXPIRY,
    ),
    System(
        name="kip-758-phase-1",
        title="KIP-758, first phase: the latest batch, five requests",
        writing=Writing.IDEMPOTENT,
        settings={**EXPIRY, "kraftsim.producer.state": "latest-batch"},
    ),
    System(
        name="kip-758-phase-2",
        title="KIP-758, second phase: the latest batch, a window that is announced",
        writing=Writing.IDEMPOTENT,
        settings={**EXPIRY, "kraftsim.producer.state": "latest-batch-announced"},
        rules=WindowedProducer,
    ),
    System(
        name="kip-758-mixed",
        title="KIP-758, second phase, one broker of three announces a window",
        writing=Writing.IDEMPOTENT,
        settings=EXPIRY,
        node_settings={"broker-1": {"kraftsim.producer.state": "latest-batch-announced"}},
        rules=WindowedProducer,
    ),
    System(
        name="lease-pid",
        title="lease_pid, strict interpretation",
        writing=Writing.LEASING,
        settings={"lease.expire.ms": str(EXPIRE_MS)},
    ),
    System(
        name="lease-pid-first-seen",
        title="lease_pid, time counts from the first message",
        writing=Writing.LEASING,
        settings={"lease.expire.ms": str(EXPIRE_MS), "lease.counts.from": "first-seen"},
    ),
)


def system_named(name: str) -> System:
    """Return a design by name. Raises KeyError that lists the names there are."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise KeyError(
        f"unknown design {name} (known designs: {', '.join(system.name for system in SYSTEMS)})"
    )
