"""The Kafka settings with an effect in kraftsim: derived from the code that reads them, for a
warning to operators.

A setting counts if `NodeConfig` declares it, if it is the default of a topic config that is read,
or if code reads it by name from the properties. The topic configs that are read are found by
passing a recording mapping to `settings_of`.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Final

from kraftsim.groups.rules_group_configs import BOUNDS
from kraftsim.metadata.quorum_source import CORDONED
from kraftsim.metadata.rules_config_releases import LINES, config_tables
from kraftsim.metadata.rules_described_configs import SYNONYMS
from kraftsim.metadata.topic_settings import settings_of
from kraftsim.server.config import KEYS_WITHOUT_EFFECT, declared_keys
from kraftsim.server.config_values import CONSUMER_BOUNDS, OLDER_NAMES
from kraftsim.server.security.listener_settings import (
    JAAS,
    TLS_KEYS,
    base_key,
    is_listener_key,
    listener_of,
)
from kraftsim.server.security.tls import TLS_CHOICES

OF_SHARE_GROUPS: Final = frozenset(
    {
        "group.share.initialize.retry.interval.ms",
        "group.share.max.share.sessions",
        "group.share.max.size",
    }
)
READ_BY_NAME: Final = (
    TLS_KEYS | TLS_CHOICES | CONSUMER_BOUNDS | OLDER_NAMES | OF_SHARE_GROUPS | {CORDONED}
)
"""Settings that code reads by name from the properties or from dynamic configs."""
OF_LISTENERS: Final = ("listeners", "advertised.listeners", "controller.listener.names")
LISTENERS_OWN: Final = frozenset({"max.connections", "max.connection.creation.rate", JAAS})


def keys_without_effect(properties: Mapping[str, str]) -> list[str]:
    """Return the Kafka settings without effect, in the order of the properties.

    A setting with a listener prefix has no effect either if the node has no such listener: the name
    may be misspelt.
    """
    listeners = {
        each.partition("://")[0].strip().lower()
        for key in OF_LISTENERS
        for each in properties.get(key, "").split(",")
    }
    return [name for name in properties if _is_idle(name, listeners)]


def _is_idle(name: str, listeners: Collection[str]) -> bool:
    if not is_listener_key(name):
        return name in KEYS_WITHOUT_EFFECT and name not in keys_in_effect()
    return (
        listener_of(name) not in listeners or base_key(name) not in keys_in_effect() | LISTENERS_OWN
    )


@cache
def keys_in_effect() -> frozenset[str]:
    """Return the broker or controller settings with effect."""
    return declared_keys() | READ_BY_NAME | topic_fallbacks() | behind_groups()


@cache
def behind_groups() -> frozenset[str]:
    """Return the broker settings that stand behind the configurations of groups, or bound them."""
    newest = config_tables(LINES[-1])
    behind = {definition.broker_key for definition in newest.groups.configs.values()}
    limits = {name for bounds in BOUNDS.values() for name in (bounds.lowest, bounds.highest)}
    return frozenset(name for name in behind & newest.broker.keys() | limits if name is not None)


@cache
def topic_fallbacks() -> frozenset[str]:
    """Return the broker defaults of topic configs that are read, with their synonyms."""
    found: set[str] = set()
    for line in LINES:
        topic = config_tables(line).topic
        for name in topic_configs_read(line):
            key = topic[name].broker_key if name in topic else None
            found.update(() if key is None else SYNONYMS.get(key, (key,)))
    return frozenset(found)


@cache
def topic_configs_read(line: str) -> frozenset[str]:
    """Return the topic configs that a broker of a release line reads."""
    effective = config_tables(line).effective_topic_configs({"remote.storage.enable": "true"}, {})
    remembered = _RecordingMapping(effective)
    settings_of(
        remembered, replica_count=1, bounds_min_in_sync_replicas=True, has_remote_store=True
    )
    return frozenset(remembered.read)


class _RecordingMapping(Mapping[str, str]):
    """Records which keys were read."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.read: dict[str, None] = {}

    def __getitem__(self, key: str) -> str:
        self.read[key] = None
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
