"""Network and protocol faults in a running cluster: they take effect, every guarantee holds, and
once they are healed all clients are served again.
"""

from collections.abc import Mapping

import pytest

from kraftsim.events.runs import FaultTookEffect
from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import AtTime, Fault, OnFrame, OnState, Trigger, Value
from kraftsim.lab.faults.state_tracker import STATES, ZOOKEEPER_CONTROLLER
from tests.simulate.fault_cluster import FaultCluster, fault_cluster
from tests.simulate.test_network_faults import KINDS as NETWORK
from tests.simulate.test_protocol_faults import KINDS as PROTOCOL

LEADER, QUORUM, FOLLOWER, BROKER = "leader", "controller-*", "controller-102", "broker-1"
ANYWHERE = "*"
FETCH, METADATA, INIT_PRODUCER_ID, VOTE, HEARTBEAT, ALLOCATE = 1, 3, 22, 52, 63, 67
SHORT = {"duration_ms": 3000}

ROWS = [
    ("partition", "leader<>controller-*", SHORT, None),
    ("slow-link", LEADER, {"latency_ms": 100, "jitter_ms": 50}, None),
    ("cut-connection", ANYWHERE, {"after_bytes": 11}, OnFrame(api_key=ALLOCATE, is_response=True)),
    ("cut-connection", LEADER, {}, None),
    ("heavy-tail", QUORUM, {"permille": 200, "scale_ms": 50}, None),
    ("bandwidth-cap", LEADER, {"bytes_per_second": 3000}, None),
    ("clog", "leader>controller-*", SHORT, None),
    ("clog", LEADER, {"duration_ms": 1500}, None),
    ("swizzle-clog", ANYWHERE, {"percent": 70}, None),
    ("ring-partition", ANYWHERE, SHORT, None),
    ("ring-partition", QUORUM, SHORT, None),
    ("isolate-leader", ANYWHERE, {"ways": "both", **SHORT}, None),
    ("isolate-leader", QUORUM, {"ways": "in", **SHORT}, None),
    ("isolate-leader", QUORUM, {"ways": "out", **SHORT}, None),
    ("half-open", LEADER, {"believer": "connected"}, None),
    ("half-open", LEADER, {"believer": "accepted"}, None),
    ("torn-reads", QUORUM, {"piece_bytes": 0}, None),
    ("torn-reads", BROKER, {"piece_bytes": 1, "gap_us": 2000}, None),
    ("reset-storm", QUORUM, {"interval_ms": 40}, None),
    ("lost-reply", ANYWHERE, {}, OnFrame(api_key=ALLOCATE)),
    ("lost-reply", ANYWHERE, {}, OnFrame(api_key=FETCH, is_response=True, nth=3)),
    ("lost-reply", LEADER, {"api_key": HEARTBEAT}, None),
    ("late-reply", ANYWHERE, {"duration_ms": 6000}, OnFrame(api_key=FETCH, client=FOLLOWER)),
    ("late-reply", LEADER, {"duration_ms": 6000, "api_key": HEARTBEAT}, None),
    ("duplicate-request", ANYWHERE, {"times": 3}, OnFrame(api_key=ALLOCATE)),
    ("duplicate-request", LEADER, {"api_key": HEARTBEAT, "after_ms": 200}, None),
    ("duplicate-request", ANYWHERE, {}, OnFrame(api_key=FETCH, client=FOLLOWER)),
    ("duplicate-request", ANYWHERE, {}, OnFrame(api_key=INIT_PRODUCER_ID)),
    ("overtaken-request", LEADER, {"api_key": FETCH, "same_client": False}, None),
    ("overtaken-request", ANYWHERE, {"duration_ms": 6000}, OnFrame(api_key=HEARTBEAT)),
]
ELECTIONS = (("both", 1), ("in", 2500), ("out", 5000), ("both", 7500))
IN_COMPANY = {"refused-connections", "connect-timeout", "stale-metadata", "old-epoch-answer"}
"""Kinds that have no effect unless something else happens."""


def test_every_kind_is_exercised_in_a_cluster() -> None:
    assert {kind for kind, *_ in ROWS} | IN_COMPANY == {*NETWORK, *PROTOCOL}


@pytest.mark.parametrize("kind, target, params, trigger", ROWS)
def test_cluster_keeps_its_guarantees_and_settles(
    kind: str, target: str, params: Mapping[str, Value], trigger: Trigger | None
) -> None:
    with fault_cluster(seed=2) as cluster:
        injection = cluster.inject(kind, target, params, trigger)
        assert injection.has_fired and injection.is_effective


@pytest.mark.parametrize("kind", ["refused-connections", "connect-timeout"])
def test_node_that_cannot_reconnect_returns_later(kind: str) -> None:
    """Connections of a follower are reset while its new connects fail."""
    with fault_cluster(seed=2) as cluster:
        arm(
            Fault(
                kind="reset-storm",
                target=FOLLOWER,
                trigger=AtTime(at_ms=cluster.now_ms + 10),
                params={"duration_ms": 1000},
            ),
            cluster.simulation,
        )
        assert cluster.inject(kind, FOLLOWER, {"duration_ms": 3000}).is_effective


def isolate_leaders(cluster: FaultCluster) -> None:
    for ways, after_ms in ELECTIONS:
        params: dict[str, Value] = {"ways": ways, "duration_ms": 1500}
        arm(
            Fault(
                kind="isolate-leader",
                target=QUORUM,
                trigger=AtTime(at_ms=cluster.now_ms + after_ms),
                params=params,
            ),
            cluster.simulation,
        )


def test_responses_of_past_epochs_are_ignored() -> None:
    """Leaders are partitioned one after the other, and every controller sends responses of the
    former epoch where it has any.
    """
    with fault_cluster(seed=1) as cluster:
        isolate_leaders(cluster)
        olds = [
            arm(
                Fault(
                    kind="old-epoch-answer",
                    target=f"controller-{number}",
                    trigger=AtTime(at_ms=1),
                    params={"times": 20, "duration_ms": 0},
                ),
                cluster.simulation,
            )
            for number in (101, 102)
        ]
        cluster.inject("old-epoch-answer", "controller-103", {"times": 20}, seconds=11)
        assert all(old.is_effective for old in olds)
        assert any("API 52" in bit.effect for bit in cluster.of(FaultTookEffect)) and any(
            "API 1 " in bit.effect for bit in cluster.of(FaultTookEffect)
        )
        for old in olds:
            old.end()


def test_every_state_occurs_in_a_cluster_that_elects() -> None:
    """A state that never occurs would be a trigger that never fires.

    Transactions and ZooKeeper mode have tests of their own.
    """
    with fault_cluster(seed=3) as cluster:
        waiting = {
            name: arm(
                Fault(kind="pause", trigger=OnState(states=(name,)), params={"duration_ms": 1}),
                cluster.simulation,
            )
            for name in STATES
        }
        isolate_leaders(cluster)
        cluster.inject("restart", FOLLOWER, {"after_ms": 100}, seconds=11)
        assert {name for name, injection in waiting.items() if injection.has_fired} == set(
            STATES
        ) - {"markers-missing", ZOOKEEPER_CONTROLLER}
