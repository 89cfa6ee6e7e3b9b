"""How much a leader reads for a ShareFetch: as many bytes as its records need."""

import pytest

from kraftsim.partitions.log_reading import LogReader
from kraftsim.share_groups.share_reading import FIRST_READ_BYTES
from tests.node.brokers import Client, batch
from tests.node.share_member import Member
from tests.node.test_share_requests import prepared, sharing_cluster

MEMBER_BYTES = 50_000_000
BATCHES, EACH = 12, 4
VALUE = bytes(20_000)


@pytest.mark.parametrize("records_max", [EACH, BATCHES * EACH])
def test_a_fetch_reads_no_more_than_its_records_need(
    monkeypatch: pytest.MonkeyPatch, records_max: int
) -> None:
    """Members offer 50 MB: few records need one small read, many a second one."""
    read_sizes: list[int] = []
    read = LogReader.read

    def counted(
        log: LogReader, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool = True
    ) -> memoryview:
        found = read(log, offset, max_bytes, end_offset, at_least_one=at_least_one)
        read_sizes.append(len(found))
        return found

    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client, records=0)
            for _ in range(BATCHES):
                await client.produce(batch(EACH, value=VALUE))
            monkeypatch.setattr(LogReader, "read", counted)
            member = Member(client, topic_id)
            acquired = await member.acquired(max_bytes=MEMBER_BYTES, max_records=records_max)
            monkeypatch.undo()
            assert (acquired[0][0], acquired[-1][1]) == (0, records_max - 1)

        cluster.run(work)
    whole = BATCHES * EACH * len(VALUE)
    assert read_sizes[0] <= FIRST_READ_BYTES < whole
    assert any(size >= whole for size in read_sizes) == (records_max > EACH)
