"""The warning about settings without effect agrees with the code: the settings it names are never
read, and all others are.
"""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from kraftsim.server.config import KEYS_WITHOUT_EFFECT, NodeConfig, declared_keys
from kraftsim.server.config_keys import NAME_KEY
from kraftsim.server.config_meanings import meaning_of
from kraftsim.server.security.listener_settings import TLS_KEYS
from kraftsim.server.settings_in_effect import (
    READ_BY_NAME,
    keys_in_effect,
    keys_without_effect,
    topic_fallbacks,
)

SOURCE = Path(__file__).parents[2] / "kraftsim"
CHECKED_OR_DESCRIBED = (
    "cluster/apache_kafka/",
    "metadata/config_facts/",
    "metadata/rules_config_definitions.py",
    "metadata/rules_starting_configs.py",
    "metadata/rules_config_releases.py",
    "metadata/rules_described_configs.py",
    "server/config_meanings.py",
    "conformance/",
)
"""Files that name settings only to validate or describe them."""
OF_A_LISTENER = {
    "num.network.threads",
    "principal.builder.class",
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
}
"""Names used in the code with the prefix `listener.name.X.`; without it they are never read."""
MISNAMED = (
    "log.dir",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "cordoned.log.dirs",
    "log.message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms",
    "log.index.size.max.bytes",
    "log.retention.hours",
    "log.retention.minutes",
    "log.roll.hours",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
)


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(CHECKED_OR_DESCRIBED):
            yield name, ast.parse(path.read_text())


MODULES = list(_modules())
WARNED = {name for name in KEYS_WITHOUT_EFFECT if keys_without_effect({name: ""})}


def test_no_setting_used_in_code_is_listed_as_without_effect() -> None:
    named = {
        (node.value, module)
        for module, tree in MODULES
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in WARNED - OF_A_LISTENER
    }
    assert len(WARNED) > 100
    assert named == set()


@pytest.mark.parametrize("name", MISNAMED)
def test_setting_with_an_effect_causes_no_warning(name: str) -> None:
    assert name in KEYS_WITHOUT_EFFECT | declared_keys()
    assert keys_without_effect({name: "1"}) == []


@pytest.mark.parametrize(
    ("name", "is_idle"),
    [
        ("listener.name.plaintext.ssl.client.auth", False),
        ("listener.name.controller.ssl.keystore.location", False),
        ("listener.name.plaintext.scram-sha-256.sasl.jaas.config", False),
        ("listener.name.plaintext.max.connections", False),
        ("listener.name.plaintxt.ssl.client.auth", True),
        ("listener.name.plaintext.ssl.provider", True),
    ],
)
def test_setting_of_an_unknown_listener_causes_a_warning(name: str, is_idle: bool) -> None:
    """A misspelt listener would silently leave client certificates off."""
    node = {"listeners": "PLAINTEXT://h:1", "controller.listener.names": "CONTROLLER"}
    assert keys_without_effect({**node, name: "x"}) == ([name] if is_idle else [])


def test_every_setting_with_effect_is_read_somewhere() -> None:
    """A declared one as a field or a parameter; others by name; or through a topic's config."""
    read: set[str] = set()
    literals: set[str] = set()
    for module, tree in MODULES:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and module != "server/config.py"
            ):
                literals.add(node.value)
    idle = [
        each.metadata[NAME_KEY]
        for each in fields(NodeConfig)
        if NAME_KEY in each.metadata
        and not {each.name, each.metadata[NAME_KEY]} & (read | literals)
        and each.metadata[NAME_KEY] not in topic_fallbacks()
    ]
    assert idle == []
    bounds = {
        name for name in READ_BY_NAME if name.startswith("group.consumer.")
    }  # their names are concatenated
    assert READ_BY_NAME - bounds - literals == set()


def test_settings_with_effect_are_those_with_a_description() -> None:
    """DescribeConfigs has a description for each of them except TLS, and for no other."""
    broker = (keys_in_effect() - TLS_KEYS) & KEYS_WITHOUT_EFFECT
    assert {name for name in broker if meaning_of(name) is None} == set()
    assert {name for name in WARNED if meaning_of(name) is not None} == set()
