"""Declaration of a Kafka property: its name, its default as text, and the parser, which returns the
value or raises with what was expected.

The declarations are the fields of `NodeConfig`; this module contains no keys.

Source: org.apache.kafka.common.config.ConfigDef.
"""

import sys
from collections.abc import Callable
from dataclasses import Field, field
from typing import TypeVar, cast

from kraftsim.server.endpoints import (
    InitialController,
    ListenerEndpoint,
    VoterAddress,
    parse_addresses,
    parse_endpoints,
    parse_initial_controllers,
    parse_voters,
    parse_zookeeper,
)

T = TypeVar("T")
SERVER_ASSIGNORS = ("uniform", "range")
NAME_KEY = "kafka_name"
DEFAULT_KEY = "default_text"
PARSE_KEY = "parse"
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigError(ValueError):
    """An unusable configuration, described in one line that names the key."""


def setting(kafka_name: str, parse: Callable[[str], T], default: str | None = "") -> T:
    """Declare a field of `NodeConfig`. A `default` of None means that the key is required."""
    return cast(T, field(metadata={NAME_KEY: kafka_name, DEFAULT_KEY: default, PARSE_KEY: parse}))


def parse_setting(declared: "Field[object]", given: str | None) -> object:
    """Return the value of one declared setting. Raises ConfigError."""
    name, default = declared.metadata[NAME_KEY], declared.metadata[DEFAULT_KEY]
    parse = cast(Callable[[str], object], declared.metadata[PARSE_KEY])
    if given is None and default is None:
        raise ConfigError(f"{name} is required")
    text = (default if given is None else given).strip()
    try:
        return parse(text)
    except ValueError as reason:
        raise ConfigError(f"{name}: {reason}") from None


def integer(*, at_least: int = -(2**31), at_most: int = INT32_MAX) -> Callable[[str], int]:
    """A whole number in an inclusive range."""

    def parse(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or not at_least <= int(text) <= at_most:
            bounds = (
                f"of {at_least} or more"
                if at_most in (INT32_MAX, INT64_MAX)
                else f"from {at_least} to {at_most}"
            )
            raise ValueError(f"expected a whole number {bounds}, got {text!r}")
        return int(text)

    return parse


def long_integer(*, at_least: int = -(2**63)) -> Callable[[str], int]:
    """A whole number of up to 64 bits."""
    return integer(at_least=at_least, at_most=INT64_MAX)


def optional_long(*, at_least: int) -> Callable[[str], int | None]:
    """A whole number of up to 64 bits, or nothing."""
    parse_number = long_integer(at_least=at_least)
    return lambda text: parse_number(text) if text else None


def decimal(*, at_least: float = 0, at_most: float = sys.float_info.max) -> Callable[[str], float]:
    """A number with or without a fraction in an inclusive range."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not at_least <= number <= at_most:
            raise ValueError(f"expected a number from {at_least:g} to {at_most:g}, got {text!r}")
        return number

    return parse


def boolean(text: str) -> bool:
    """true or false, in any case."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text!r}")
    return text.lower() == "true"


def text_value(text: str) -> str:
    """Any text."""
    return text


def optional_text(text: str) -> str | None:
    """Any text, or nothing."""
    return text or None


def names(text: str) -> tuple[str, ...]:
    """A list of names between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def choice(*allowed: str) -> Callable[[str], str]:
    """One of some choices, in Kafka's spelling."""

    def parse(text: str) -> str:
        for each in allowed:
            if text.lower() == each.lower():
                return each
        raise ValueError(f"expected one of {', '.join(allowed)}, got {text!r}")

    return parse


def choices(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A comma-separated list of choices."""

    def parse(text: str) -> tuple[str, ...]:
        chosen = names(text)
        if not chosen or any(each not in allowed for each in chosen):
            raise ValueError(f"expected some of {', '.join(allowed)}, got {text!r}")
        return chosen

    return parse


def assignors(text: str) -> tuple[str, ...]:
    """Consumer group assignors: Kafka's by name; class names are accepted and not loaded."""
    chosen = names(text)
    wrong = next(
        (each for each in chosen if each not in SERVER_ASSIGNORS and "." not in each), None
    )
    if wrong is not None:
        raise ValueError(f"expected {' or '.join(SERVER_ASSIGNORS)} or a class, got {wrong!r}")
    return chosen


def endpoints(text: str) -> tuple[ListenerEndpoint, ...]:
    """Listeners with their addresses."""
    return parse_endpoints(text)


def voters(text: str) -> tuple[VoterAddress, ...]:
    """Controllers with their addresses."""
    return parse_voters(text)


def initial_controllers(text: str) -> tuple[InitialController, ...]:
    """The initial voters of a quorum, in the format of kafka-storage."""
    return parse_initial_controllers(text)


def addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Hosts with their ports."""
    return parse_addresses(text)


def zookeeper_addresses(text: str) -> str:
    """The connect string of ZooKeeper's clients, or nothing."""
    parse_zookeeper(text)
    return text


def counts(text: str) -> dict[str, int]:
    """Name -> count, as comma-separated NAME:COUNT."""
    found = {}
    for part in names(text):
        name, colon, count = part.rpartition(":")
        if not (name and colon and count.isdecimal()):
            raise ValueError(f"expected NAME:COUNT, got {part}")
        found[name.strip()] = int(count)
    return found


def protocol_map(text: str) -> dict[str, str]:
    """Listener name -> security protocol, both upper case."""
    pairs = [part.partition(":") for part in names(text)]
    for name, colon, protocol in pairs:
        if not (name and colon and protocol):
            raise ValueError(f"expected NAME:PROTOCOL, got {name + colon + protocol!r}")
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


# --------------------------------------------------------------------------------------------------
# The names of the variants that settings choose between

BY_PRODUCE, BY_API_VERSIONS, BY_INIT_PRODUCER_ID = "produce", "api-versions", "init-producer-id"
"""The responses that announce a window; with the last two the broker advertises a special version
of Produce.
"""


FIVE_BATCHES, LATEST_BATCH, LATEST_BATCH_46, ANNOUNCED_WINDOW = (
    "five-batches",
    "latest-batch",
    "latest-batch-46",
    "latest-batch-announced",
)


UNKNOWN_PRODUCERS = (
    "as-released",
    "accepted",
    "unknown-producer-id",
    "out-of-order",
    "out-of-order-in-new-logs",
)
"""How writes of an unknown producer are handled: the first as in the release."""


AS_RELEASED, EVERY_SEGMENT, NEWEST_TWO, REPLAY_YOUNGER = (
    "as-released",
    "every-segment",
    "newest-two",
    "replay-younger",
)
"""Which segments keep producer snapshots: the first as in the release, the third as before 2.8.
With the last, a log that has lost all snapshots is replayed only for producer.id.expiration.ms.
"""


ENDING, ON_DEMAND, EAGER = "ending", "on-demand", "eager"
"""Alternatives to the release's producer-id block allocation: stop the broker on an authorization
failure; allocate late; allocate early.
"""


BLOCK_CHANNELS = ("shared-channel", "own-channel", "numbered", "after-replay", "own-disk")
"""The sources of blocks, the first as released: see `kraftsim.producer_ids.broker`."""


AS_MERGED, KEEPING = "as-merged", "keeping"
"""What brokers have of two-phase commit (KIP-939) beside their release: the version of
InitProducerId that 4.1 to 4.4 have as an unstable one; and transactions that are kept for the next
producer.
"""


RESIZABLE, REPEATING, LAST_ID = "resizable", "repeating", "last-id"
"""Alternative block allocators of a controller: variable block size, idempotent requests, and
records that contain a block's last id.
"""
