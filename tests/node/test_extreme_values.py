"""A broker continues to serve with each extreme value of each dynamic setting that it has
accepted.
"""

import asyncio

import pytest

from kraftsim.metadata.rules_config_definitions import UpdateMode
from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.server.events import NodeFailed
from protocol.config_resources import ConfigType
from protocol.errors import ErrorCode
from protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.node.brokers import Client, batch, running_cluster

BROKER, SET, DELETE = 4, 0, 1
OWN_LAYER = 2
NUMBERS = {ConfigType.INT: 31, ConfigType.LONG: 63}
"""kind -> bits of the greatest value."""
LIMIT_S = 5
"""The maximum simulated time until an accepted value takes effect."""


def extremes(kind: ConfigType) -> list[str]:
    """Return the values of a kind at which arithmetic goes wrong; the node rejects what is out of
    range.
    """
    if kind in NUMBERS:
        highest = 2 ** NUMBERS[kind] - 1
        return [str(value) for value in (-highest - 1, -1, 0, 1, highest)]
    if kind is ConfigType.DOUBLE:
        return ["0", "1", "1.7976931348623157E308"]
    return ["true", "false"] if kind is ConfigType.BOOLEAN else []


async def alter(client: Client, name: str, operation: int, value: str | None) -> int:
    """Change one setting of the broker; return the error."""
    row = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[row])
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    return int(answer.responses[0].error_code)


async def is_in_use(client: Client, name: str) -> bool:
    """Return whether the broker describes a value that was set on itself."""
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=[name]
    )
    answer = await client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    return any(row.config_source == OWN_LAYER for row in answer.results[0].configs)


async def wait_for(client: Client, name: str, *, is_set: bool) -> None:
    """Wait until a change has reached the broker through the metadata log."""
    async with asyncio.timeout(LIMIT_S):
        while await is_in_use(client, name) != is_set:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("line", ["3.9", "4.4"])
def test_broker_works_with_each_accepted_extreme_value(line: str) -> None:
    """Applied for real: DescribeConfigs returns it, then one Produce and one Fetch are answered.

    They may be rejected (max.message.bytes 0); after the deletion of the value they succeed.
    """
    tables = config_tables(line).broker
    names = [
        name
        for name, row in tables.items()
        if row.mode in (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE)
    ]
    accepted = []
    with running_cluster(release_name=line, kraftsim_release=line) as cluster:

        async def go(client: Client) -> None:
            await client.create_topic("t")
            assert (await client.produce(batch())).error_code == ErrorCode.NONE
            for name in names:
                for value in extremes(tables[name].kind):
                    if await alter(client, name, SET, value) != ErrorCode.NONE:
                        continue
                    accepted.append((name, value))
                    await wait_for(client, name, is_set=True)
                    async with asyncio.timeout(LIMIT_S):
                        await client.produce(batch())
                        await client.fetch(0)
                    assert await alter(client, name, DELETE, None) == ErrorCode.NONE
                    await wait_for(client, name, is_set=False)
            assert (await client.produce(batch())).error_code == ErrorCode.NONE
            assert (await client.fetch(0)).error_code == ErrorCode.NONE

        cluster.run(go, limit_s=3600)
        assert cluster.emitted(NodeFailed) == []
    assert len(accepted) > 60
