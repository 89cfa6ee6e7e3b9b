"""Brokers of KIP-758's second phase announce their window in Produce responses, and both kinds of
producers work with all kinds of brokers.

Source: KIP-758 (never adopted).
"""

from collections.abc import Sequence

import pytest

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.reader import ReaderClient
from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.clients.rules_producer_variants import WindowedProducer
from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.server.events_connections import FrameReceived, FrameSent
from kraftsim.world.simulated import Simulation
from protocol.announced_window import PRODUCE_VERSION, announced_window
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from tests.node.brokers import Client, batch, running_cluster
from tools.claims.recording import Figures

RECORDS = 200

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "default.replication.factor": "3",
}


def test_only_a_configured_broker_announces_its_window() -> None:
    for kind, window in {
        "latest-batch-announced": 500,
        "latest-batch": None,
        "five-batches": None,
    }.items():
        with running_cluster(
            kraftsim_producer_state=kind, max_in_flight_sequence_number_per_connection="500"
        ) as cluster:

            async def work(client: Client, window: int | None = window) -> None:
                await client.create_topic("t")
                data = PartitionProduceData(index=0, records=batch(1))
                answer = await client.ask(
                    ProduceRequest(
                        acks=-1,
                        timeout_ms=1000,
                        topic_data=[TopicProduceData(name="t", partition_data=[data])],
                    ),
                    9,
                )
                assert announced_window(answer._tags) == window

            cluster.run(work)


def test_each_carrier_adds_the_window_to_its_own_response(figures: Figures) -> None:
    """758-15, 758-21: requests keep Kafka's versions; a broker that announces its window before
    Produce offers a Produce version of its own.
    """
    for carrier, last, windows in (
        ("produce", 11, (None, None, 500)),
        ("api-versions", PRODUCE_VERSION, (500, None, None)),
        ("init-producer-id", PRODUCE_VERSION, (None, 500, None)),
    ):
        config = {
            "kraftsim_producer_state": "latest-batch-announced",
            "max_in_flight_sequence_number_per_connection": "500",
        }
        with running_cluster(settings=config, kraftsim_window_carrier=carrier) as cluster:

            async def work(
                client: Client,
                last: int = last,
                windows: tuple[int | None, ...] = windows,
                carrier: str = carrier,
            ) -> None:
                await client.create_topic("t")
                offer = await client.ask(
                    ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3
                )
                produce = next(row for row in offer.api_keys if row.api_key == 0)
                asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
                taken = await client.ask(asked, 4)
                while taken.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    assert announced_window(taken._tags) is None, "an error announces nothing"
                    taken = await client.ask(asked, 4)
                data = PartitionProduceData(index=0, records=batch(1))
                answer = await client.ask(
                    ProduceRequest(
                        acks=-1,
                        timeout_ms=1000,
                        topic_data=[TopicProduceData(name="t", partition_data=[data])],
                    ),
                    9,
                )
                assert (
                    tuple(announced_window(each._tags) for each in (offer, taken, answer))
                    == windows
                )
                assert produce.max_version == last
                figures(**{f"offered_{carrier}": produce.max_version})
                old = await client.ask(asked, 1)
                assert old.error_code == 0, "a version without tagged fields is answered as before"

            cluster.run(work)


def under_way_before_the_first_answer(
    node_settings: dict[str, dict[str, str]], brokers: int = 1
) -> int:
    """Let a producer of the second phase write 40 batches to a partition of broker 1; return how
    many requests it sends before a response.
    """
    with Simulation(4) as simulation:
        settings = {
            **SETTINGS,
            "default.replication.factor": "1",
            "kraftsim.producer.state": "latest-batch-announced",
        }
        cluster = SimulatedCluster(
            ClusterSpec(brokers=brokers, settings=settings, node_settings=node_settings, seed=4),
            simulation,
        )
        cluster.start()
        simulation.run_until(cluster.wait_until_ready())
        simulation.run_until(create_topic(cluster.addresses, "t", brokers, 1))
        under_way: list[int] = []
        count = 0

        def look(node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
            nonlocal count
            if (
                node == "writer"
                and isinstance(event, FrameSent | FrameReceived)
                and event.api_key == 0
            ):
                count += 1 if isinstance(event, FrameSent) else -1
                under_way.append(count)

        simulation.observe(look)
        host = simulation.add_host("writer")
        client = ProducerClient(
            simulation.world_of(host),
            bootstrap=cluster.addresses[-1:],
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
        first_answer = next(
            place for place, many in enumerate(under_way) if place and many < under_way[place - 1]
        )
        return max(under_way[:first_answer])


@pytest.mark.parametrize(
    ("carrier", "most"), [("produce", 5), ("api-versions", 40), ("init-producer-id", 40)]
)
def test_window_announced_at_the_start_is_known_before_the_first_request(
    carrier: str, most: int, figures: Figures
) -> None:
    """758-15: if Produce responses announce it, five requests are sent first, and more once one is
    answered.
    """
    found = under_way_before_the_first_answer({"broker-1": {"kraftsim.window.carrier": carrier}})
    assert found == most
    figures(**{f"before_the_first_answer_{carrier}": found})


@pytest.mark.parametrize(("carrier", "most"), [("api-versions", 10), ("init-producer-id", 40)])
def test_init_producer_id_announces_the_window_of_the_broker_that_answers(
    carrier: str, most: int, figures: Figures
) -> None:
    """758-15: brokers 1 and 2 have windows of 10 and 1,000; 2 allocates the id, 1 leads. The value
    announced with the id is right for one of them only.
    """
    window, common = (
        "max.in.flight.sequence.number.per.connection",
        {"kraftsim.window.carrier": carrier},
    )
    leader, giver = 10, 1000
    found = under_way_before_the_first_answer(
        {"broker-1": {window: str(leader), **common}, "broker-2": {window: str(giver), **common}}, 2
    )
    assert found == most
    figures(
        **{f"sent_to_the_leader_{carrier}": found},
        window_of_the_leader=leader,
        window_of_the_giver=giver,
    )


def test_leader_without_a_window_is_sent_five_whatever_the_id_announced() -> None:
    """758-21, 758-22: its supported versions end with Kafka's Produce version, so the window of
    another broker does not apply.
    """
    kinds = {
        "broker-1": {"kraftsim.producer.state": "five-batches"},
        "broker-2": {"kraftsim.window.carrier": "init-producer-id"},
    }
    assert under_way_before_the_first_answer(kinds, 2) == 5


def keys_after_the_leader_died(rules: type[IdempotentProducer], kinds: Sequence[str]) -> list[str]:
    """Kill the leader of a partition while many records are in flight; return the final contents of
    its log.
    """
    node_settings = {
        f"broker-{number}": {"kraftsim.producer.state": kind}
        for number, kind in enumerate(kinds, 1)
    }
    with Simulation(3) as simulation:
        spec = ClusterSpec(brokers=3, settings=SETTINGS, node_settings=node_settings, seed=3)
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready())
        simulation.run_until(create_topic(cluster.addresses, "t", 1, 3))
        host = simulation.add_host("writer")
        client = ProducerClient(
            simulation.world_of(host),
            bootstrap=cluster.addresses,
            client_id="writer",
            settings=ProducerSettings(batch_size_bytes=100),
            rules=rules,
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
        reader = ReaderClient(
            simulation.world_of(reader_host), bootstrap=cluster.addresses, client_id="reader"
        )
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
def test_leadership_moves_between_kinds_without_losing_records(
    rules: type[IdempotentProducer], kinds: Sequence[str], figures: Figures
) -> None:
    """The leader is killed while many batches are in flight.

    From a window to five batches some may be duplicated; none is lost.
    """
    keys = keys_after_the_leader_died(rules, kinds)
    assert set(keys) == {str(number) for number in range(RECORDS)}
    if rules is IdempotentProducer or "five-batches" not in kinds:
        assert len(keys) == RECORDS
    figures(records=RECORDS, lost=RECORDS - len(set(keys)))
