"""758-29: transactional producers that take the next epoch when their sequences are exhausted, at
brokers of each release.

The limit is lowered to 5, so that the second transaction of four records would cross it. Up to 2.4
InitProducerId does not name the producer: the producer gets its next epoch, and so does a fenced
producer. It cannot bump its epoch and stay fenced; wrapping around needs the window. With
transaction.version 2 (since 4.0) each transaction has its own epoch, and none of them reaches the
limit.
Source: KIP-758 (Rejected Alternatives), KIP-360, KIP-890.
"""

from functools import cache

import pytest

from kraftsim.clients.producer_requests import request_of
from kraftsim.clients.rules_producer_steps import ProducerIdentity, ProducerSettings
from kraftsim.clients.rules_producer_variants import (
    EndingQueue,
    EndingSender,
    EndingTransactionalProducer,
)
from kraftsim.clients.rules_transaction_steps import InitProducerId, TransactionalSettings
from kraftsim.clients.transactional_producer import (
    AbortNeeded,
    ProducerFailed,
    TransactionalClient,
)
from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.releases.release import Release, releases
from kraftsim.releases.release import release as release_of
from kraftsim.world.simulated import Simulation
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdResponse
from tools.claims.recording import Figures

FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
ONE = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
}
COMMITTED, ABORTED = "committed", "aborted"


class NearQueue(EndingQueue):
    """Ends at 5."""

    sequence_max = 5


class NearSender(EndingSender):
    """Sends through it."""

    queue_class = NearQueue


class NearProducer(EndingTransactionalProducer):
    """Takes the next epoch after six records of a partition."""

    sender_class = NearSender


class ReleaseResult:
    """Three transactions of four records, then a successor with the same transactional id, then the
    first producer requests its next epoch.
    """

    def __init__(self, release: Release) -> None:
        self.outcomes: list[str] = []
        self.epochs: list[int] = []
        self.error = ErrorCode.NONE
        self.next_epoch = -1
        self.is_successor_fenced = False
        in_zookeeper = not release.broker_apis
        with Simulation(5) as simulation:
            spec = ClusterSpec(
                brokers=1,
                controllers=0 if in_zookeeper else 1,
                zookeeper=in_zookeeper,
                release=release.name,
                seed=5,
                settings=ONE,
            )
            self.cluster = SimulatedCluster(spec, simulation)
            self.cluster.start()
            simulation.run_until(self.cluster.wait_until_ready())
            simulation.run_until(create_topic(self.cluster.addresses, "t", 1, 1))
            first, successor = (self._client(simulation, name) for name in ("first", "successor"))
            host = simulation.add_host("application")
            simulation.run_until(simulation.spawn(host, self._run(first, successor)), 300)

    def _client(self, simulation: Simulation, name: str) -> TransactionalClient:
        settings = TransactionalSettings(
            transactional_id="x", producer=ProducerSettings(linger_ms=0, batch_size_bytes=1)
        )
        world = simulation.world_of(simulation.add_host(name))
        return TransactionalClient(
            world,
            bootstrap=self.cluster.addresses,
            client_id=name,
            settings=settings,
            rules=NearProducer,
        )

    async def _run(self, first: TransactionalClient, successor: TransactionalClient) -> None:
        await first.init()
        for number in range(3):
            self.outcomes.append(await _copy(first, str(number)))
            self.epochs.append(first.next_identity.producer_epoch - 1)
        identity = ProducerIdentity(
            first.next_identity.producer_id, first.next_identity.producer_epoch - 1
        )
        await successor.init()
        connection = await first.connections.to_any()
        version = connection.version_for(ApiKey.INIT_PRODUCER_ID)
        asked = InitProducerId(
            transactional_id="x", transaction_timeout_ms=10_000, identity=identity
        )
        answer = await connection.request(request_of(asked, version), api_version=version)
        assert isinstance(answer, InitProducerIdResponse)
        self.error, self.next_epoch = ErrorCode(answer.error_code), answer.producer_epoch
        try:
            await _copy(successor, "later")
        except ProducerFailed:
            self.is_successor_fenced = True


@cache
def result_at(line: str) -> ReleaseResult:
    """Return the result at brokers of a release; it runs once in each process."""
    return ReleaseResult(release_of(line))


async def _copy(client: TransactionalClient, name: str) -> str:
    """Write four records in a transaction and commit it; return the result."""
    try:
        await client.begin()
        for number in range(4):
            await client.send("t", 0, f"{name}.{number}", b"v")
        await client.commit()
    except AbortNeeded:
        await client.abort()
        return ABORTED
    return COMMITTED


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.name)
def test_transactional_producer_exhausts_its_sequences_at_each_release(release: Release) -> None:
    result = result_at(release.name)
    if release.name.startswith("4."):
        assert (result.outcomes, result.epochs) == ([COMMITTED] * 3, [1, 2, 3]), (
            "each end of a transaction bumps the epoch"
        )
    else:
        assert (result.outcomes, result.epochs) == ([COMMITTED, ABORTED, COMMITTED], [0, 1, 1])
    if release.name in ("2.3", "2.4"):
        assert (result.error, result.next_epoch) == (ErrorCode.NONE, result.epochs[-1] + 2), (
            "the request does not name the producer"
        )
        assert result.is_successor_fenced
    else:
        assert result.error in FENCED
        assert not result.is_successor_fenced


def test_only_two_releases_return_the_next_epoch_to_a_fenced_producer(figures: Figures) -> None:
    refusals = {release.name: result_at(release.name).error in FENCED for release in releases()}
    unable = [name for name, is_refused in refusals.items() if not is_refused]
    assert unable == ["2.3", "2.4"]
    figures(releases_played=len(refusals), unable_releases=" and ".join(unable))
