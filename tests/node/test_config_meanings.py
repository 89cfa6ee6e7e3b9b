"""Each setting with effect has a one-sentence description, which DescribeConfigs returns on
request.
"""

import subprocess
import sys

from kraftsim.metadata.rules_config_releases import LINES, config_tables
from kraftsim.server.config import NodeConfig, declared_keys
from kraftsim.server.config_meanings import TABLE, meaning_of
from protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.node.brokers import Client, running_cluster
from tests.node.test_config import BROKER
from tools.docs.settings_page import SECURED


def test_every_setting_with_effect_has_a_description() -> None:
    """No description belongs to a name that no release has."""
    ours = {name for name in declared_keys() if name.startswith("kraftsim.")}
    assert {name for name in declared_keys() - ours if meaning_of(name) is None} == set()
    known = {
        name
        for line in LINES
        for name in (
            *config_tables(line).broker,
            *config_tables(line).topic,
            *config_tables(line).internal,
            *config_tables(line).groups.configs,
        )
    }
    described = {line.partition(" | ")[0] for line in TABLE.strip().splitlines()}
    rates = {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
    assert described - known - declared_keys() - rates == set()
    assert all(line.count(" | ") == 1 and line.endswith(".") for line in TABLE.strip().splitlines())


def test_client_that_requests_documentation_gets_it() -> None:
    """include_documentation (KIP-569); otherwise it is null."""
    with running_cluster() as cluster:

        async def ask(client: Client) -> None:
            resource = DescribeConfigsResource(
                resource_type=4,
                resource_name="1",
                configuration_keys=["message.max.bytes", "num.io.threads"],
            )
            for wanted in (True, False):
                answer = await client.ask(
                    DescribeConfigsRequest(resources=[resource], include_documentation=wanted), 4
                )
                documentation = {row.name: row.documentation for row in answer.results[0].configs}
                assert documentation == {
                    "message.max.bytes": meaning_of("message.max.bytes") if wanted else None,
                    "num.io.threads": None,
                }

        cluster.run(ask)


def test_startup_does_not_load_the_descriptions() -> None:
    """They are 200 lines that few clients request."""
    code = (
        "import sys, kraftsim.metadata.config_responses, kraftsim.server.config; "
        "sys.exit('kraftsim.server.config_meanings' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_documented_sample_is_a_valid_configuration() -> None:
    """Each of its keys is known; the key file's contents are validated at startup."""
    lines = SECURED.partition("```properties\n")[2].partition("```")[0].splitlines()
    config = NodeConfig.parse({**BROKER, **dict(line.split("=", 1) for line in lines)})
    assert config.listener_security_protocol_map["CLIENTS"] == "SASL_SSL"
