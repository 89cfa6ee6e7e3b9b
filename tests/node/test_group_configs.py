"""Configurations of groups as a broker reads them from its metadata: changes apply at once."""

from kraftsim.groups.rules_group_configs import CONSUMER_ASSIGNMENT, CONSUMER_SESSION
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.topic_settings import configs_of_groups
from kraftsim.server.config import NodeConfig
from protocol.config_resources import ConfigResourceType
from protocol.metadata.settings import ConfigRecord
from tests.node.test_config import BROKER

INTERVAL = "group.consumer.assignment.interval.ms"


def test_values_of_the_group_of_the_broker_and_of_all_brokers_apply_in_this_order() -> None:
    """Dynamic settings of brokers may change at any time (KIP-1263)."""
    image = MetadataImage()
    config = NodeConfig.parse({**BROKER, "kraftsim.release": "4.4", INTERVAL: "2000"})
    configs = configs_of_groups(config, lambda: image)
    node = str(config.node_id)
    seen = [configs.value("g", CONSUMER_ASSIGNMENT)]
    for kind, name, key, value in (
        (ConfigResourceType.BROKER, "", INTERVAL, "3000"),
        (ConfigResourceType.BROKER, node, INTERVAL, "4000"),
        (ConfigResourceType.GROUP, "g", CONSUMER_ASSIGNMENT, "5000"),
        (ConfigResourceType.GROUP, "g", CONSUMER_ASSIGNMENT, None),
        (ConfigResourceType.BROKER, node, INTERVAL, None),
        (ConfigResourceType.BROKER, "", INTERVAL, None),
    ):
        record = ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        image.replay(record, len(seen))
        seen.append(configs.value("g", CONSUMER_ASSIGNMENT))
    assert seen == [2_000, 3_000, 4_000, 5_000, 4_000, 3_000, 2_000]
    assert configs.value("g", CONSUMER_SESSION) == 45_000
