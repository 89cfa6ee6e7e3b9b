"""How many connections are let in, and how fast: by node, by listener and by address (KIP-402, KIP-612)."""

import pytest

from kraftsim.core.metadata.broker_configs import BrokerSettings
from kraftsim.core.quotas.connection_limits import ConnectionLimits, ConnectionSettings, DoorLimits, TurnedAway, connection_settings
from protocol.metadata.m14_client_quota import ClientQuotaRecord, EntityData


def limits(settings: ConnectionSettings | None = None, **ips: float) -> ConnectionLimits:
    """Limits that hold; `ips` are rates of addresses, '' of all others."""
    made = ConnectionLimits(11, 1000)
    made.follow(settings or ConnectionSettings())
    made.follow_ips(
        ClientQuotaRecord(entity=[EntityData(entity_type="ip", entity_name=ip or None)], key="connection_creation_rate", value=rate)
        for ip, rate in ips.items()
    )
    return made


def test_settings_come_from_the_node_and_from_each_listener():
    """Only other brokers' own listener is protected, and only where there is another one."""
    static = {"max.connections": "7", "listener.name.outside.max.connection.creation.rate": "3", "max.connections.per.ip.overrides": "a:1, ::1:2"}
    found = connection_settings(BrokerSettings(static=static), ("OUTSIDE", "INSIDE"), "INSIDE")
    assert found.node == DoorLimits(7) and found.listeners["OUTSIDE"] == DoorLimits(rate_max=3) and found.listeners["INSIDE"] == DoorLimits()
    assert found.per_ip_overrides == {"a": 1, "::1": 2} and found.protected == "INSIDE"
    assert connection_settings(BrokerSettings(), ("INSIDE",), "INSIDE") == ConnectionSettings(listeners={"INSIDE": DoorLimits()})


@pytest.mark.parametrize(
    "settings",
    [
        ConnectionSettings(node=DoorLimits(rate_max=2)),
        ConnectionSettings(listeners={"OUTSIDE": DoorLimits(rate_max=2)}),
        ConnectionSettings(node=DoorLimits(rate_max=1000), listeners={"OUTSIDE": DoorLimits(rate_max=2)}),
    ],
)
def test_who_comes_too_fast_waits_and_never_longer_than_a_window(settings):
    """Two per second, taken over ten seconds: twenty at once, half a second for the next one, a second at most for any."""
    door = limits(settings)
    pauses = [door.pause_ms("OUTSIDE", 0) for _ in range(25)]
    assert pauses == [0] * 20 + [500, 1000, 1000, 1000, 1000]


def test_other_brokers_do_not_wait_for_clients():
    """A protected listener minds its own limits alone."""
    door = limits(ConnectionSettings(node=DoorLimits(1, 1), protected="INSIDE"))
    assert [door.pause_ms("OUTSIDE", 0) for _ in range(12)][-1] > 0 and door.pause_ms("INSIDE", 0) == 0
    assert door.enter("OUTSIDE", "a", 0) is None
    assert not door.has_room("OUTSIDE") and door.has_room("INSIDE") and not door.are_too_many
    assert door.enter("INSIDE", "b", 0) is None
    assert door.are_too_many and door.may_go("OUTSIDE") and not door.may_go("INSIDE")
    door.leave("OUTSIDE", "a")
    assert not door.are_too_many


def test_a_listener_may_have_less_room_than_its_node():
    door = limits(ConnectionSettings(node=DoorLimits(3), listeners={"OUTSIDE": DoorLimits(1)}))
    assert door.enter("OUTSIDE", "a", 0) is None
    assert not door.has_room("OUTSIDE") and door.has_room("OTHER")


def test_too_many_from_one_address_are_turned_away_at_once():
    """max.connections.per.ip, and what single addresses may have instead."""
    door = limits(ConnectionSettings(per_ip=1, per_ip_overrides={"b": 2}))
    assert [door.enter("X", ip, 0) for ip in ("a", "a", "b", "b", "b")] == [None, TurnedAway(0), None, None, TurnedAway(0)]
    door.leave("X", "a")
    assert door.enter("X", "a", 0) is None


def test_too_fast_from_one_address_is_turned_away_after_a_while_and_does_not_count():
    """connection_creation_rate: of an address itself, or of any other; who is turned away neither fills the room nor the rate."""
    door = limits(ConnectionSettings(node=DoorLimits(30)), a=1.0, **{"": 2.0})
    fates = [door.enter("X", "a", 0) for _ in range(12)]
    assert fates == [None] * 10 + [TurnedAway(1000)] * 2
    assert [door.enter("X", "b", 0) for _ in range(21)][-1] == TurnedAway(500)
    assert not door.has_room("X"), "ten and twenty"
    door.follow_ips(())
    assert door.enter("X", "a", 0) is None, "without a quota nobody is turned away"
