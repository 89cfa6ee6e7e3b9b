"""Brokers of KIP-758's second phase announce their window in answers to Produce, and producers of both kinds live with brokers of all kinds.

Source: KIP-758 (never adopted).
"""

from collections.abc import Sequence

import pytest

from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.cluster.topics import create_topic
from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.producer_steps import ProducerSettings
from kraftsim.core.clients.windowed_producer import WindowedProducer
from kraftsim.events.connections import FrameReceived, FrameSent
from kraftsim.events.event import Event
from kraftsim.node.clients import ProducerClient, ReaderClient
from kraftsim.world.simulated import Simulation
from protocol.announced_window import PRODUCE_VERSION, announced_window
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k18_api_versions import ApiVersionsRequest
from tests.node.brokers import Client, batch, running_cluster

RECORDS = 200

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500", "default.replication.factor": "3"}


def test_only_a_broker_that_is_told_so_announces_its_window() -> None:
    for kind, window in {"latest-batch-announced": 500, "latest-batch": None, "five-batches": None}.items():
        with running_cluster(kraftsim_producer_state=kind, max_in_flight_sequence_number_per_connection="500") as cluster:

            async def work(client: Client, window: int | None = window) -> None:
                await client.create_topic("t")
                data = PartitionProduceData(index=0, records=batch(1))
                answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]), 9)
                assert announced_window(answer._tags) == window

            cluster.run(work)


def test_a_broker_says_what_it_is_by_a_version_of_produce_of_its_own() -> None:
    """758-21: before anything is sent; requests stay in Kafka's versions, and the answer to Produce says nothing more."""
    for carrier, last, window in (("produce", 11, None), ("api-versions", PRODUCE_VERSION, 500)):
        told = {"kraftsim_producer_state": "latest-batch-announced", "max_in_flight_sequence_number_per_connection": "500"}
        with running_cluster(**told, kraftsim_window_carrier=carrier) as cluster:

            async def work(client: Client, last: int = last, window: int | None = window) -> None:
                await client.create_topic("t")
                offer = await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
                produce = next(row for row in offer.api_keys if row.api_key == 0)
                assert (produce.max_version, announced_window(offer._tags)) == (last, window)
                data = PartitionProduceData(index=0, records=batch(1))
                answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]), 9)
                assert announced_window(answer._tags) == (500 if window is None else None)

            cluster.run(work)


@pytest.mark.parametrize(("carrier", "most"), [("produce", 5), ("api-versions", 40)])
def test_a_window_in_the_offer_is_known_before_the_first_request(carrier: str, most: int) -> None:
    """758-15: with the answers to Produce five requests leave first, and more when one is answered."""
    with Simulation(4) as simulation:
        settings = {
            **SETTINGS,
            "default.replication.factor": "1",
            "kraftsim.producer.state": "latest-batch-announced",
            "kraftsim.window.carrier": carrier,
        }
        cluster = SimulatedCluster(ClusterSpec(brokers=1, settings=settings, seed=4), simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready())
        simulation.run_until(create_topic(cluster.addresses, "t", 1, 1))
        under_way: list[int] = []
        count = 0

        def look(node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
            nonlocal count
            if node == "writer" and isinstance(event, FrameSent | FrameReceived) and event.api_key == 0:
                count += 1 if isinstance(event, FrameSent) else -1
                under_way.append(count)

        simulation.observe(look)
        host = simulation.add_host("writer")
        client = ProducerClient(
            simulation.world_of(host),
            bootstrap=cluster.addresses,
            client_id="writer",
            settings=ProducerSettings(linger_ms=0, batch_size_bytes=1),
            rules=WindowedProducer,
            frame_events=True,
        )
        simulation.run_until(simulation.spawn(host, client.start()))

        async def write() -> int:
            for number in range(40):
                await client.send("t", 0, str(number), b"v")
            return await client.flush(60)

        assert simulation.run_until(simulation.spawn(host, write()), 100) == 0
        first_answer = next(place for place, many in enumerate(under_way) if place and many < under_way[place - 1])
        assert max(under_way[:first_answer]) == most


def keys_after_the_leader_died(rules: type[IdempotentProducer], kinds: Sequence[str]) -> list[str]:
    """Kill the leader of a partition while many records are under way; return what is in its log in the end."""
    node_settings = {f"broker-{number}": {"kraftsim.producer.state": kind} for number, kind in enumerate(kinds, 1)}
    with Simulation(3) as simulation:
        spec = ClusterSpec(brokers=3, settings=SETTINGS, node_settings=node_settings, seed=3)
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready())
        simulation.run_until(create_topic(cluster.addresses, "t", 1, 3))
        host = simulation.add_host("writer")
        client = ProducerClient(
            simulation.world_of(host), bootstrap=cluster.addresses, client_id="writer", settings=ProducerSettings(batch_size_bytes=100), rules=rules
        )
        simulation.run_until(simulation.spawn(host, client.start()))

        async def write() -> int:
            for number in range(RECORDS):
                await client.send("t", 0, str(number), b"v")
            return await client.flush(60)

        writing = simulation.spawn(host, write())
        simulation.run_for(0.05)
        simulation.kill("broker-1")
        assert simulation.run_until(writing, 100) == 0
        simulation.restart("broker-1")
        simulation.run_until(cluster.wait_until_ready())
        reader_host = simulation.add_host("reader")
        reader = ReaderClient(simulation.world_of(reader_host), bootstrap=cluster.addresses, client_id="reader")
        found = simulation.run_until(simulation.spawn(reader_host, reader.read_all("t", [0])))
        return [record.key for record in found or ()]


@pytest.mark.parametrize("rules", [IdempotentProducer, WindowedProducer])
@pytest.mark.parametrize(
    "kinds",
    [
        ("latest-batch-announced", "latest-batch-announced", "latest-batch-announced"),
        ("latest-batch-announced", "five-batches", "five-batches"),
        ("five-batches", "latest-batch-announced", "latest-batch-announced"),
        ("latest-batch", "five-batches", "latest-batch-announced"),
    ],
)
def test_leadership_moves_between_kinds_and_every_record_is_there(rules: type[IdempotentProducer], kinds: Sequence[str]) -> None:
    """Its leader is killed while many are under way. From a window to five batches some may be doubled; none is lost."""
    keys = keys_after_the_leader_died(rules, kinds)
    assert set(keys) == {str(number) for number in range(RECORDS)}
    if rules is IdempotentProducer or "five-batches" not in kinds:
        assert len(keys) == RECORDS
