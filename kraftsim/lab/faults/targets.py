"""Targets of faults: a host, several hosts, the present leader, or links between them.

A host is given by name; 'controller-*' and other patterns match several hosts, 'a,b' means both,
and `leader` means the leader of the metadata quorum at that moment, or the controller in ZooKeeper
mode. Between such groups 'a>b' is one direction, 'a<>b' both, and 'a' alone means all links between
a and all other hosts.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

BOTH_WAYS = "<>"
ONE_WAY = ">"
LEADER_TARGET = "leader"
PATTERN_SIGNS = ("*", "?", "[")


def directions(target: str, hosts: list[str], *, may_lack: bool = False) -> list[tuple[str, str]]:
    """Return the (source, target) pairs that a target names.

    Raises KeyError for an unknown host, unless `may_lack`.
    """
    if BOTH_WAYS in target:
        ones, others = (members(side, hosts, may_lack=may_lack) for side in target.split(BOTH_WAYS))
        pairs = [
            pair
            for one in ones
            for other in others
            if one != other
            for pair in ((one, other), (other, one))
        ]
    elif ONE_WAY in target:
        ones, others = (members(side, hosts, may_lack=may_lack) for side in target.split(ONE_WAY))
        pairs = [(one, other) for one in ones for other in others if one != other]
    else:
        ones = members(target, hosts, may_lack=may_lack)
        pairs = [
            pair
            for one in ones
            for other in hosts
            if other != one
            for pair in ((one, other), (other, one))
        ]
    return list(dict.fromkeys(pairs))


def members(group: str, hosts: Sequence[str], *, may_lack: bool = False) -> list[str]:
    """Return the hosts of a group, in the order of their names in it.

    Raises KeyError for an unknown host, or a pattern without a match, unless `may_lack`.
    """
    found: dict[str, None] = {}
    for name in group.split(","):
        fitting = [
            host
            for host in hosts
            if host == name
            or (any(sign in name for sign in PATTERN_SIGNS) and fnmatchcase(host, name))
        ]
        if not fitting and not may_lack:
            raise KeyError(f"unknown host {name} (known hosts: {', '.join(hosts)})")
        found.update(dict.fromkeys(fitting))
    return list(found)


def names_leader(target: str) -> bool:
    """Return whether a target contains the leader."""
    return LEADER_TARGET in _words(target)


def with_leader(target: str, leader: str) -> str:
    """Return a target with the name of the leader in place of `leader`."""
    pieces = [
        ",".join(leader if name == LEADER_TARGET else name for name in side.split(","))
        for side in _sides(target)
    ]
    return _sign(target).join(pieces)


def is_group(target: str) -> bool:
    """Return whether a target may mean several hosts, and no links."""
    return not _sign(target) and ("," in target or any(sign in target for sign in PATTERN_SIGNS))


def _words(target: str) -> list[str]:
    return [name for side in _sides(target) for name in side.split(",")]


def _sides(target: str) -> list[str]:
    sign = _sign(target)
    return target.split(sign) if sign else [target]


def _sign(target: str) -> str:
    return BOTH_WAYS if BOTH_WAYS in target else ONE_WAY if ONE_WAY in target else ""
