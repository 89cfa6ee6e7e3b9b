"""Targets between hosts: 'a>b' is one direction, 'a<>b' both, and 'a' alone means everything between that host and all others."""

BOTH_WAYS = "<>"
ONE_WAY = ">"


def directions(target: str, hosts: list[str]) -> list[tuple[str, str]]:
    """Return the (source, target) pairs that a target names. Raises KeyError for a host that is not there."""
    if BOTH_WAYS in target:
        one, _, other = target.partition(BOTH_WAYS)
        pairs = [(one, other), (other, one)]
    elif ONE_WAY in target:
        one, _, other = target.partition(ONE_WAY)
        pairs = [(one, other)]
    else:
        pairs = [pair for other in hosts if other != target for pair in ((target, other), (other, target))]
    for name in [name for pair in pairs for name in pair]:
        if name not in hosts:
            raise KeyError(f"no host is called {name} (there are: {', '.join(hosts)})")
    return pairs
