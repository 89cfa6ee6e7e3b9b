"""Whom a fault strikes: a host, several of them, whoever leads now, or links between them.

A host is named; 'controller-*' and other patterns mean every host that fits, 'a,b' means both, and `leader` means whoever leads the metadata quorum
at that moment, in a cluster of before KRaft whoever is controller. Between such groups 'a>b' is one direction, 'a<>b' both, and 'a' alone means
everything between a and everybody else.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

BOTH_WAYS = "<>"
ONE_WAY = ">"
LEADER_WORD = "leader"
PATTERN_SIGNS = ("*", "?", "[")


def directions(target: str, hosts: list[str], *, may_lack: bool = False) -> list[tuple[str, str]]:
    """Return the (source, target) pairs that a target names. Raises KeyError for a host that is not there, unless some may be lacking."""
    if BOTH_WAYS in target:
        ones, others = (members(side, hosts, may_lack=may_lack) for side in target.split(BOTH_WAYS))
        pairs = [pair for one in ones for other in others if one != other for pair in ((one, other), (other, one))]
    elif ONE_WAY in target:
        ones, others = (members(side, hosts, may_lack=may_lack) for side in target.split(ONE_WAY))
        pairs = [(one, other) for one in ones for other in others if one != other]
    else:
        ones = members(target, hosts, may_lack=may_lack)
        pairs = [pair for one in ones for other in hosts if other != one for pair in ((one, other), (other, one))]
    return list(dict.fromkeys(pairs))


def members(group: str, hosts: Sequence[str], *, may_lack: bool = False) -> list[str]:
    """Return the hosts of a group, in the order of their names in it.

    Raises KeyError for a host that is not there, or a pattern that fits none, unless some may be lacking.
    """
    found: dict[str, None] = {}
    for word in group.split(","):
        fitting = [host for host in hosts if host == word or (any(sign in word for sign in PATTERN_SIGNS) and fnmatchcase(host, word))]
        if not fitting and not may_lack:
            raise KeyError(f"no host is called {word} (there are: {', '.join(hosts)})")
        found.update(dict.fromkeys(fitting))
    return list(found)


def names_leader(target: str) -> bool:
    """Tell whether a target means whoever leads."""
    return LEADER_WORD in _words(target)


def with_leader(target: str, leader: str) -> str:
    """Return a target in which the leader has a name."""
    pieces = [",".join(leader if word == LEADER_WORD else word for word in side.split(",")) for side in _sides(target)]
    return _sign(target).join(pieces)


def is_group(target: str) -> bool:
    """Tell whether a target may mean several hosts, and no links."""
    return not _sign(target) and ("," in target or any(sign in target for sign in PATTERN_SIGNS))


def _words(target: str) -> list[str]:
    return [word for side in _sides(target) for word in side.split(",")]


def _sides(target: str) -> list[str]:
    sign = _sign(target)
    return target.split(sign) if sign else [target]


def _sign(target: str) -> str:
    return BOTH_WAYS if BOTH_WAYS in target else ONE_WAY if ONE_WAY in target else ""
