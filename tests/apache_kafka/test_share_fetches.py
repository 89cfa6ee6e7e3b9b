"""ShareFetch and ShareAcknowledge: the same requests to Apache Kafka and to a broker of kraftsim,
and the same responses, messages included.
"""

import pytest

from kraftsim.server.outbound import PeerConnection
from kraftsim.world.real.runner import new_event_loop
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.share_steps import Connect, Responses, Steps, begin_group
from tests.node.brokers import Client, running_cluster

pytestmark = pytest.mark.interop
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


async def responses_of(connect: Connect) -> Responses:
    """Begin a group on a new topic, and run the sequence."""
    client = await connect()
    topic_id = await client.create_topic("t")
    await begin_group(client, topic_id)
    steps = Steps(connect, topic_id)
    await steps.run()
    return steps.responses


def of_apache_kafka(release: str) -> Responses:
    """Run the sequence on a node of Apache Kafka."""
    with ApacheKafka(release, settings=SETTINGS) as kafka:

        async def connect() -> Client:
            connection = PeerConnection("127.0.0.1", kafka.port, client_id="test")
            await connection.connect()
            return Client(connection)

        loop = new_event_loop()
        try:
            return loop.run_until_complete(responses_of(connect))
        finally:
            loop.close()


def of_kraftsim(line: str) -> Responses:
    """Run the sequence on a broker in virtual time."""
    with running_cluster(1, SETTINGS, release_name=line) as cluster:

        async def work(client: Client) -> Responses:
            return await responses_of(cluster.connect)

        return cluster.run(work)


@pytest.mark.parametrize(("line", "release"), [("4.2", "4.2.2"), ("4.4", "4.4.0")])
def test_the_responses_are_those_of_apache_kafka(line: str, release: str) -> None:
    ours, theirs = of_kraftsim(line), of_apache_kafka(release)
    for own, other in zip(ours, theirs, strict=True):
        assert own == other
