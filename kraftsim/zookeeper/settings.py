"""Server settings under the names of ZooKeeper's configuration file.

Source: org.apache.zookeeper.server.quorum.QuorumPeerConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftsim.server.config_keys import ConfigError
from protocol.zookeeper.op_codes import FRAME_BYTES_MAX

COMMANDS: Final = ("conf", "cons", "dump", "envi", "isro", "mntr", "ruok", "srvr", "stat", "wchs")
"""The supported four-letter commands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ZookeeperSettings:
    """`allowed_commands` is wider than ZooKeeper's default (srvr), because the simulated network
    has no untrusted clients.
    """

    node_name: str = "zookeeper-1"
    host: str = "127.0.0.1"
    port: int = 2181
    tick_ms: int = 2000
    frame_bytes_max: int = FRAME_BYTES_MAX
    changes_between_snapshots: int = 100_000
    connections_per_host_max: int = 60
    allowed_commands: tuple[str, ...] = field(default=COMMANDS)
    super_digest: str = ""
    """The superuser: `super:` and the hash of name and password."""

    @classmethod
    def parse(cls, given: Mapping[str, str], node_name: str = "zookeeper-1") -> "ZookeeperSettings":
        """Return the settings of a configuration file. Raises ConfigError for invalid values."""
        unknown = sorted(set(given) - set(_KEYS))
        if unknown:
            raise ConfigError(
                f"{unknown[0]}: not a supported setting (supported: {', '.join(_KEYS)})"
            )
        whitelist = given.get("4lw.commands.whitelist", "*")
        chosen = (
            COMMANDS
            if whitelist.strip() == "*"
            else tuple(each.strip() for each in whitelist.split(","))
        )
        strange = [each for each in chosen if each not in COMMANDS]
        if strange:
            raise ConfigError(
                f"4lw.commands.whitelist: {strange[0]} is not one of {', '.join(COMMANDS)}"
            )
        return cls(
            node_name=node_name,
            host=given.get("clientPortAddress", "127.0.0.1"),
            port=_number(given, "clientPort", 2181, 0, 65535),
            tick_ms=_number(given, "tickTime", 2000, 1, 3_600_000),
            frame_bytes_max=_number(given, "jute.maxbuffer", FRAME_BYTES_MAX, 1024, 1 << 30),
            changes_between_snapshots=_number(given, "snapCount", 100_000, 2, 1 << 31),
            connections_per_host_max=_number(given, "maxClientCnxns", 60, 0, 1 << 31),
            allowed_commands=chosen,
            super_digest=given.get("DigestAuthenticationProvider.superDigest", ""),
        )


_KEYS: Final = (
    "clientPort",
    "clientPortAddress",
    "tickTime",
    "jute.maxbuffer",
    "snapCount",
    "maxClientCnxns",
    "4lw.commands.whitelist",
    "DigestAuthenticationProvider.superDigest",
)


def _number(given: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    text = given.get(key, str(default))
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{key}: {text!r} is not a whole number") from None
    if not least <= number <= most:
        raise ConfigError(f"{key}: {number} is not between {least} and {most}")
    return number
