"""How many connections are accepted, and at which rate: by node, by listener and by address
(KIP-402, KIP-612).
"""

import pytest

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.server.rules_quotas import (
    AcceptorLimits,
    ConnectionLimits,
    ConnectionSettings,
    RejectedConnection,
    connection_settings,
)
from protocol.metadata.settings import ClientQuotaRecord, EntityData


def limits(settings: ConnectionSettings | None = None, **ips: float) -> ConnectionLimits:
    """The limits; `ips` are rates by address, '' for all others."""
    made = ConnectionLimits(11, 1000)
    made.follow(settings or ConnectionSettings())
    made.follow_ips(
        ClientQuotaRecord(
            entity=[EntityData(entity_type="ip", entity_name=ip or None)],
            key="connection_creation_rate",
            value=rate,
        )
        for ip, rate in ips.items()
    )
    return made


def test_limits_come_from_the_node_and_from_each_listener() -> None:
    """Only the inter-broker listener is protected, and only if there is another listener."""
    static = {
        "max.connections": "7",
        "listener.name.outside.max.connection.creation.rate": "3",
        "max.connections.per.ip.overrides": "a:1, ::1:2",
    }
    found = connection_settings(BrokerSettings(static=static), ("OUTSIDE", "INSIDE"), "INSIDE")
    assert (
        found.node == AcceptorLimits(7)
        and found.listeners["OUTSIDE"] == AcceptorLimits(rate_max=3)
        and found.listeners["INSIDE"] == AcceptorLimits()
    )
    assert found.per_ip_overrides == {"a": 1, "::1": 2} and found.protected == "INSIDE"
    assert connection_settings(BrokerSettings(), ("INSIDE",), "INSIDE") == ConnectionSettings(
        listeners={"INSIDE": AcceptorLimits()}
    )


@pytest.mark.parametrize(
    "settings",
    [
        ConnectionSettings(node=AcceptorLimits(rate_max=2)),
        ConnectionSettings(listeners={"OUTSIDE": AcceptorLimits(rate_max=2)}),
        ConnectionSettings(
            node=AcceptorLimits(rate_max=1000), listeners={"OUTSIDE": AcceptorLimits(rate_max=2)}
        ),
    ],
)
def test_connections_above_the_rate_wait_for_one_window_at_most(
    settings: ConnectionSettings,
) -> None:
    """Two per second over a window of ten seconds: twenty at once, the next waits half a second,
    none waits for more than a second.
    """
    acceptor = limits(settings)
    pauses = [acceptor.pause_ms("OUTSIDE", 0) for _ in range(25)]
    assert pauses == [0] * 20 + [500, 1000, 1000, 1000, 1000]


def test_inter_broker_connections_do_not_wait_for_clients() -> None:
    """Only its own limits apply to a protected listener."""
    acceptor = limits(ConnectionSettings(node=AcceptorLimits(1, 1), protected="INSIDE"))
    assert [acceptor.pause_ms("OUTSIDE", 0) for _ in range(12)][-1] > 0 and acceptor.pause_ms(
        "INSIDE", 0
    ) == 0
    assert acceptor.enter("OUTSIDE", "a", 0) is None
    assert (
        not acceptor.has_room("OUTSIDE")
        and acceptor.has_room("INSIDE")
        and not acceptor.are_too_many
    )
    assert acceptor.enter("INSIDE", "b", 0) is None
    assert acceptor.are_too_many and acceptor.may_go("OUTSIDE") and not acceptor.may_go("INSIDE")
    acceptor.leave("OUTSIDE", "a")
    assert not acceptor.are_too_many


def test_listener_may_have_a_lower_limit_than_its_node() -> None:
    acceptor = limits(
        ConnectionSettings(node=AcceptorLimits(3), listeners={"OUTSIDE": AcceptorLimits(1)})
    )
    assert acceptor.enter("OUTSIDE", "a", 0) is None
    assert not acceptor.has_room("OUTSIDE") and acceptor.has_room("OTHER")


def test_too_many_connections_of_one_address_are_rejected_immediately() -> None:
    """max.connections.per.ip, and its overrides for single addresses."""
    acceptor = limits(ConnectionSettings(per_ip=1, per_ip_overrides={"b": 2}))
    assert [acceptor.enter("X", ip, 0) for ip in ("a", "a", "b", "b", "b")] == [
        None,
        RejectedConnection(0),
        None,
        None,
        RejectedConnection(0),
    ]
    acceptor.leave("X", "a")
    assert acceptor.enter("X", "a", 0) is None


def test_connections_of_one_address_above_its_rate_are_rejected_and_not_counted() -> None:
    """connection_creation_rate of an address, or its default; a rejected connection counts toward
    neither the connection limit nor the rate.
    """
    acceptor = limits(ConnectionSettings(node=AcceptorLimits(30)), a=1.0, **{"": 2.0})
    fates = [acceptor.enter("X", "a", 0) for _ in range(12)]
    assert fates == [None] * 10 + [RejectedConnection(1000)] * 2
    assert [acceptor.enter("X", "b", 0) for _ in range(21)][-1] == RejectedConnection(500)
    assert not acceptor.has_room("X"), "ten and twenty"
    acceptor.follow_ips(())
    assert acceptor.enter("X", "a", 0) is None, "without a quota no connection is rejected"
