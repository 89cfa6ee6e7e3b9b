"""Which names a topic may have.   Source: org.apache.kafka.common.internals.Topic, ReplicationControlManager.validateNewTopicNames."""

import re
from collections.abc import Iterable
from typing import Final

NAME_LENGTH_MAX: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_name_is_invalid(name: str) -> str | None:
    """Return Kafka's sentence about an illegal name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if _LEGAL.fullmatch(name) is None:
        return f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def colliding_name(name: str, existing: Iterable[str]) -> str | None:
    """Return an existing topic that differs only in '.' and '_', which metrics cannot tell apart; None if there is none."""
    unified = _unified(name)
    return next((other for other in existing if other != name and _unified(other) == unified), None)


def _unified(name: str) -> str:
    return name.replace(".", "_")
