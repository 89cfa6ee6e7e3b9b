"""Streams of random numbers, one per purpose: what one part of a node draws never shifts what another part draws.

One shared generator would make a run unshrinkable: leaving out a single fault would change every later draw.
"""

from random import Random


def stream(seed: int, node: str, incarnation: int, purpose: str) -> Random:
    """Return the stream of a purpose, at its beginning; equal keys give equal streams in every process and under every hash seed."""
    return Random(f"{seed}/{node}/{incarnation}/{purpose}")
