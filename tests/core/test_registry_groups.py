"""Registry records by group: the same as in a full scan, also after a revert."""

import time
from functools import partial
from random import Random

import pytest

from kraftsim.core.timeline import Journal, TimelineDict
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registries import Registries, quota_entity
from kraftsim.zookeeper.rules_znodes import access_changes, acl_text
from protocol.acls import AclPatternType, AclResourceType
from protocol.metadata.security import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.metadata.settings import ClientQuotaRecord, EntityData

RESOURCES = 5000
SECONDS_MAX = 3.0


def rule(number: int, name: str) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=number.to_bytes(16),
        resource_type=2,
        resource_name=name,
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


@pytest.mark.parametrize("seed", range(2))
def test_groups_equal_a_full_scan_also_after_a_revert(seed: int) -> None:
    rng = Random(seed)
    journal = Journal()
    registries = Registries(partial(TimelineDict, journal))
    for offset in range(2000):
        journal.mark(offset)
        number = rng.randrange(30)
        name = rng.choice("abc")
        match rng.randrange(4):
            case 0:
                registries.replay(RemoveAccessControlEntryRecord(id=number.to_bytes(16)))
            case 1 | 2:
                registries.replay(rule(number, name))
            case 3:
                registries.replay(
                    ClientQuotaRecord(
                        entity=[EntityData(entity_type="user", entity_name=name)],
                        key=rng.choice(("producer_byte_rate", "consumer_byte_rate")),
                        value=1.0,
                        remove=rng.randrange(2) == 0,
                    )
                )
        if rng.randrange(50) == 0:
            journal.revert_to(max(0, offset - rng.randrange(20)))
            registries.on_undone()
        for each in "abc":
            wanted = [one for one in registries.access_rules.records() if one.resource_name == each]
            assert registries.access_rules.of_group((2, 3, each)) == wanted
            entity = (("user", each),)
            quotas = [
                one for one in registries.quotas.records() if quota_entity(one.entity) == entity
            ]
            assert registries.quotas.of_group(entity) == quotas


def test_formatting_all_resources_is_as_cheap_as_formatting_all_rules() -> None:
    """A ZooKeeper-mode controller writes each resource that a request changes, and each broker
    reads it.
    """
    image = MetadataImage()
    names = [f"t{number}" for number in range(RESOURCES)]
    started = time.process_time()
    for number, name in enumerate(names):
        resource = (AclResourceType.TOPIC, AclPatternType.LITERAL, name)
        assert access_changes(resource, None, image) == []
        image.replay(rule(number, name), number)
        text = acl_text(resource, image.registries)
        assert text is not None and b"User:a" in text
        assert access_changes(resource, None, image) != []
    assert time.process_time() - started < SECONDS_MAX
