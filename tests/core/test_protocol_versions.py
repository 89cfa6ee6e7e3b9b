"""inter.broker.protocol.version: its names, their order, and what each level enables.

Source: MetadataVersion (3.9), ApiVersion (2.8).
"""

import pytest

from kraftsim.metadata.rules_versions import (
    LEVELS_BY_NAME,
    ProtocolVersion,
    UnknownProtocolVersion,
)
from kraftsim.releases import traits
from kraftsim.releases.traits import Trait


@pytest.mark.parametrize(
    ("text", "name", "level"),
    [
        ("2.8", "2.8-IV1", -1),
        ("2.8-IV0", "2.8-IV0", -1),
        ("2.8.2", "2.8-IV1", -1),
        ("0.10.2", "0.10.2-IV0", -1),
        ("0.10.2.1", "0.10.2-IV0", -1),
        ("2.3", "2.3-IV1", -1),
        ("3.0-IV0", "3.0-IV0", -1),
        ("3.0", "3.0-IV1", 1),
        ("3.3", "3.3-IV3", 7),
        ("3.9", "3.9-IV0", 21),
    ],
)
def test_short_name_is_the_last_level_of_its_release(text: str, name: str, level: int) -> None:
    """A patch number is ignored.

    Levels before 3.0-IV1 have no number (verified with MetadataVersion.fromVersionString of 3.9.1).
    """
    version = ProtocolVersion.parse(text)
    assert (version.name, version.level) == (name, level)


@pytest.mark.parametrize(
    "text", ["", "2", "4.0", "4.0-IV1", "2.9", "2.8-IV7", "2.8-IV1-x", "newest"]
)
def test_invalid_level_is_rejected_with_kafkas_message(text: str) -> None:
    """4.0 has removed the setting."""
    with pytest.raises(UnknownProtocolVersion, match=f"^Version {text} is not a valid version$"):
        ProtocolVersion.parse(text)


@pytest.mark.parametrize(
    ("trait", "switch"),
    [
        (traits.FEATURE_ZNODE, "has_feature_znode"),
        (traits.ALTERED_PARTITIONS, "uses_alter_partition"),
        (traits.TOPIC_IDS, "has_topic_ids"),
        (traits.RPC_PRODUCER_IDS, "allocates_producer_ids"),
        (traits.LEADER_RECOVERY, "has_leader_recovery"),
        (traits.MIGRATES_FROM_ZOOKEEPER, "can_migrate"),
    ],
    ids=lambda each: each.name if isinstance(each, Trait) else "",
)
def test_behaviour_changes_at_the_level_of_its_trait(trait: Trait, switch: str) -> None:
    """Not before, and never back."""
    names = [
        name
        for name in LEVELS_BY_NAME
        if ProtocolVersion.parse("3.9") >= ProtocolVersion(list(LEVELS_BY_NAME).index(name), name)
    ]
    thrown = [name for name in names if getattr(ProtocolVersion.parse(name), switch)]
    assert trait.since_level is not None and thrown == names[names.index(trait.since_level) :]
