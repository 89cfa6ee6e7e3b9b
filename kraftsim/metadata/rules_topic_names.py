"""Topic names: which are valid, which collide, and those of internal topics.

Source: org.apache.kafka.common.internals.Topic, ReplicationControlManager.validateNewTopicNames.
"""

import re
from typing import Final

NAME_LENGTH_MAX: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_name_is_invalid(name: str) -> str | None:
    """Return Kafka's error message about an invalid name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed "
            f"length {NAME_LENGTH_MAX}"
        )
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return None


def unified_name(name: str) -> str | None:
    """Return the name in metrics, where '.' and '_' are the same; None for a name without them.

    Two topics must not collide there.
    """
    return name.replace(".", "_") if "." in name or "_" in name else None


# --------------------------------------------------------------------------------------------------
# Internal topics

GROUP_METADATA: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
ADMIN_CLIENT_ID: Final = "__admin_client"
"""AdminUtils.ADMIN_CLIENT_ID: clients with this client id may write to internal topics."""


def is_internal(topic: str) -> bool:
    """Return whether a topic is internal."""
    return topic in (GROUP_METADATA, TRANSACTION_STATE, SHARE_GROUP_STATE)
