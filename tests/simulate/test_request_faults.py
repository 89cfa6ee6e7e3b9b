"""Faults of requests in simulation: nodes carry them out in virtual time, one seed gives one log,
and without them nothing stands in front of a node.
"""

from dataclasses import replace

import pytest

from kraftsim.cluster.request_tap import RequestTap
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.events.runs import FaultInjected, FaultTookEffect
from kraftsim.lab.campaign.worker_pool import CampaignJob, Terms
from kraftsim.lab.explore.isolated import as_data
from kraftsim.lab.explore.record import replay_command
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import AtTime, Fault, OnEvent, Value
from kraftsim.lab.faults.kinds.request_faults import of_requests
from kraftsim.lab.faults.request_fault_text import BadRequestFault
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdBlockRequested,
    ProducerIdReturned,
)
from kraftsim.server.broker import Broker
from kraftsim.server.controller import Controller
from tests.simulate.fault_cluster import IDS, FaultCluster, fault_cluster

ASKED = "InitProducerId"
TEXTS = (
    f"{ASKED} error=COORDINATOR_LOAD_IN_PROGRESS times=3",
    f"{ASKED} error=COORDINATOR_LOAD_IN_PROGRESS share=30% times=all duration_ms=2000",
    f"{ASKED} drop",
    f"{ASKED} drop=reply nth=2",
    f"{ASKED} delay delay_ms=300 times=3",
    f"{ASKED} delay=reply delay_ms=300 times=3",
    f"{ASKED} duplicate delay_ms=50 times=3",
    f"{ASKED} disconnect times=2",
    f"{ASKED} disconnect after_bytes=7",
    f"{ASKED} disconnect=reply after_bytes=7",
    f"{ASKED} truncate after_bytes=20",
    f"{ASKED} truncate=reply after_bytes=12",
    f"{ASKED} throttle throttle_ms=250 times=3",
    f"{ASKED} throttle=reply bytes_per_second=200 times=2",
    "* blackhole client_id=asker-* duration_ms=1500",
    f"{ASKED} blackhole nth=3 duration_ms=1500",
    "BrokerHeartbeat drop=reply sender=any",
    "Fetch reorder sender=any node=controller-* wait_ms=2000 times=5",
    "AllocateProducerIds error=NOT_CONTROLLER sender=any times=2",
    f"{ASKED} error=COORDINATOR_LOAD_IN_PROGRESS done times=3",
    "AllocateProducerIds error=REQUEST_TIMED_OUT done sender=broker-* node=controller-* times=2",
    "Fetch error=NOT_LEADER_OR_FOLLOWER sender=broker-* node=controller-* times=3",
    "Fetch error=UNKNOWN_LEADER_EPOCH sender=controller-* node=controller-* times=3",
    "BrokerHeartbeat error=STALE_BROKER_EPOCH sender=broker-1 times=2",
)


@pytest.mark.parametrize("text", TEXTS)
def test_cluster_keeps_its_guarantees_and_settles(text: str) -> None:
    with fault_cluster(seed=2) as cluster:
        injection = cluster.inject("request-fault", "*", {"fault": text})
        assert injection.has_fired and injection.is_effective


def test_reply_is_lost_of_the_request_that_is_served_when_the_event_happens() -> None:
    """No later request has the event: that fault would have no effect otherwise."""
    with fault_cluster(seed=2) as cluster:
        last = OnEvent(kind="ProducerIdReturned", nth=IDS)
        injection = cluster.inject("request-fault", "*", {"fault": f"{ASKED} drop=reply"}, last)
        assert injection.is_effective
        assert len(cluster.of(ProducerIdReturned)) == IDS + 1, "the client has asked again"


def test_reply_is_lost_that_waits_when_the_event_happens() -> None:
    """The controller answers once the record is committed."""
    with fault_cluster(seed=2) as cluster:
        text = "AllocateProducerIds error=REQUEST_TIMED_OUT done sender=broker-* node=controller-*"
        event = OnEvent(kind="ProducerIdBlockAllocated")
        params: dict[str, Value] = {"fault": text, "here": True}
        injection = cluster.inject("request-fault", "*", params, event)
        assert injection.is_effective
        kinds = [type(event) for _, _, event in cluster.emitted]
        fired, took = kinds.index(FaultInjected), kinds.index(FaultTookEffect)
        assert ProducerIdBlockRequested not in kinds[fired:took]
        blocks = [event.first_producer_id for event in cluster.of(ProducerIdBlockReceived)]
        given = [event.first_producer_id for event in cluster.of(ProducerIdBlockAllocated)]
        assert given[0] not in blocks, "the block whose response was lost is not allocated again"


def test_event_limits_the_fault_to_its_node_if_the_text_allows_that() -> None:
    for node, is_effective in (("", True), (" node=controller-*", False)):
        with fault_cluster(seed=2) as cluster:
            event = OnEvent(kind="ProducerIdReturned", host="broker-2")
            params: dict[str, Value] = {"fault": f"{ASKED} drop=reply{node}", "here": True}
            assert cluster.inject("request-fault", "*", params, event).is_effective == is_effective
            effects = [each.effect for each in cluster.of(FaultTookEffect)]
            assert all(effect.endswith("at broker-2") for effect in effects)


def taps(cluster: FaultCluster) -> list[bool]:
    """For each connection of the nodes, whether a tap serves it."""
    return [
        isinstance(connection.server, RequestTap)
        for node in cluster.cluster.nodes.values()
        if isinstance(node, Broker | Controller)
        for connection in node.connections()
    ]


def test_nothing_is_in_front_of_a_node_before_the_first_fault() -> None:
    with fault_cluster(seed=2) as cluster:
        assert taps(cluster) and not any(taps(cluster))
        cluster.inject("request-fault", "*", {"fault": f"{ASKED} drop client_id=no-client"})
        assert taps(cluster) and all(taps(cluster))


def test_fault_is_over_when_it_is_healed() -> None:
    with fault_cluster(seed=2) as cluster:
        fault = {"fault": f"{ASKED} error=14 nth=100000"}
        assert not cluster.inject("request-fault", "*", fault).is_effective
        before = len(cluster.of(FaultTookEffect))
        assert not cluster.inject("request-fault", "*", fault).is_effective
        assert len(cluster.of(FaultTookEffect)) == before


def test_target_is_the_node_unless_the_text_names_one() -> None:
    for target, text in (
        ("broker-2", f"{ASKED} error=14 times=all duration_ms=2000"),
        ("broker-1", f"{ASKED} error=14 times=all duration_ms=2000 node=broker-2"),
    ):
        with fault_cluster(seed=2) as cluster:
            cluster.inject("request-fault", target, {"fault": text})
            (effect,) = cluster.of(FaultTookEffect)
            assert effect.effect.endswith("at broker-2")


def test_restarted_node_still_has_the_fault() -> None:
    with fault_cluster(seed=2) as cluster:
        start = AtTime(at_ms=cluster.now_ms)
        for name in ("broker-1", "broker-2"):
            arm(
                Fault(kind="restart", target=name, trigger=start, params={"after_ms": 300}),
                cluster.simulation,
            )
        text = f"{ASKED} error=14 times=all duration_ms=4000"
        assert cluster.inject("request-fault", "*", {"fault": text}).is_effective


def test_text_that_says_no_fault_is_refused_when_it_is_armed() -> None:
    with fault_cluster(seed=2) as cluster, pytest.raises(BadRequestFault, match="did you mean"):
        fault = Fault(kind="request-fault", trigger=AtTime(at_ms=0), params={"fault": "EndTx drop"})
        arm(fault, cluster.simulation)


RUN = RunRequest(
    scenario=scenario("delayed_end_txn"),
    mode=Mode.SIM,
    seed=4,
    faults=(
        of_requests("EndTxn error=CONCURRENT_TRANSACTIONS share=0.3 times=all"),
        of_requests("Produce delay=reply delay_ms=200 share=0.2 times=all", at_ms=1000),
    ),
)


def test_one_seed_gives_one_log() -> None:
    first, again = run_request(RUN), run_request(RUN)
    assert first.events_sha256 == again.events_sha256
    assert first.faults == {"request-fault": (2, 2, 2)}
    assert first.outcome == "ok"
    other = run_request(replace(RUN, seed=5))
    assert other.events_sha256 != first.events_sha256


def test_faults_of_a_user_are_part_of_the_request_and_of_its_replay() -> None:
    text = "EndTxn drop=reply nth=2"
    asked = replace(RUN, faults=None, injected=(text,))
    assert asked.schedule()[-1] == of_requests(text)
    assert f"--inject '{text}'" in replay_command(asked)
    assert as_data(asked).injected == (text,)
    job = CampaignJob(name="delayed_end_txn", seed=4, terms=Terms(injected=(text,)))
    assert job.request().injected == (text,)
    with pytest.raises(BadRequestFault):
        replace(asked, injected=("EndTxn",))
