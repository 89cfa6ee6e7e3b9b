"""The rates at which a broker copies to its remote store and reads from there (KIP-956)."""

from kraftsim.tiered_storage.events import RemoteCopyFinished
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.tiered_storage.harness import TieredHarness

BROKERS, EVERY = 4, ""
SEGMENTS = 4
COPY, FETCH = (
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
)


def lift(harness: TieredHarness, key: str) -> None:
    """Remove the limit."""
    row = AlterableConfig(name=key, config_operation=0, value=str(2**63 - 1))
    harness.ask(
        1,
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=BROKERS, resource_name=EVERY, configs=[row])
            ]
        ),
    )


def test_copies_wait_until_the_rate_is_below_its_limit() -> None:
    """A segment counts as a whole before its copy begins: at 200 bytes per second the next one of
    nearly 1,000 bytes follows four seconds later.
    """
    with TieredHarness(brokers=1, settings={COPY: "200"}) as harness:
        harness.create_topic()
        for _ in range(2 * SEGMENTS + 1):
            harness.produce(1)
        copied = []
        for _ in range(3):
            harness.wait(4)
            copied.append(len(harness.of(RemoteCopyFinished)))
        assert copied in ([1, 2, 3], [1, 2, 2], [1, 1, 2]), (
            f"copied by the fourth, eighth and twelfth second: {copied}"
        )
        lift(harness, COPY)
        harness.wait(3)
        assert len(harness.of(RemoteCopyFinished)) == SEGMENTS, (
            "a waiting copy is notified within a second"
        )


def test_reads_above_the_rate_return_nothing() -> None:
    """Bytes count after the read, so that the first read always succeeds."""
    with TieredHarness(brokers=1, settings={FETCH: "100"}) as harness:
        harness.create_topic()
        for _ in range(2 * SEGMENTS + 1):
            harness.produce(1)
        harness.wait(8)
        first, second = harness.fetch(1, 0), harness.fetch(1, 2)
        assert (first.error_code, bool(first.records)) == (0, True)
        assert (second.error_code, bool(second.records)) == (0, False)
        assert harness.fetch(1, 2 * SEGMENTS).records, "local reads are not throttled"
        harness.wait(9)
        assert harness.fetch(1, 2).records
        assert not harness.fetch(1, 4).records
        lift(harness, FETCH)
        harness.wait(1)
        assert harness.fetch(1, 4).records
