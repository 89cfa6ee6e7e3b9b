"""Streams of random numbers, one per purpose: draws in one part of a node never affect those in
another part.

With one shared generator a run could not be shrunk: removing a single fault would change every
later draw.
"""

from random import Random


def stream(seed: int, node: str, incarnation: int, purpose: str) -> Random:
    """Return the stream of a purpose, at its start; equal keys give equal streams in every process
    and under every hash seed.
    """
    return Random(f"{seed}/{node}/{incarnation}/{purpose}")
