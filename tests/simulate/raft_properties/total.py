"""Results of many seeds of a property, for the processes that share them."""

import time
from dataclasses import dataclass, field

from tests.simulate.raft_properties.properties import PropertyResult, run

Chunk = tuple[str, int, int]
"""The name of a property, its first seed, and the end of its seeds."""


@dataclass
class Total:
    """The results of the seeds of one property."""

    seeds: int = 0
    cpu_seconds: float = 0.0
    broken: list[str] = field(default_factory=list)
    looks: int = 0
    virtual_ms: int = 0
    most_epochs: int = 0

    def add(self, more: "Total") -> None:
        """Add the results of other seeds."""
        self.seeds += more.seeds
        self.cpu_seconds += more.cpu_seconds
        self.broken += more.broken
        self.looks += more.looks
        self.virtual_ms += more.virtual_ms
        self.most_epochs = max(self.most_epochs, more.most_epochs)


def run_chunk(chunk: tuple[str, int, int]) -> tuple[str, Total]:
    name, first, end = chunk
    total = Total()
    for seed in range(first, end):
        began = time.process_time()
        try:
            result: PropertyResult | None = run(name, seed)
        except (
            Exception
        ) as failure:  # a violated invariant, a failed member, or no progress: all are findings
            result = None
            again = f"python -m tests.simulate.raft_properties {name} --seeds 1 --first-seed {seed}"
            total.broken.append(f"BROKEN: {type(failure).__name__}: {failure}\n  {again}")
        total.cpu_seconds += time.process_time() - began
        total.seeds += 1
        if result is not None:
            total.looks += result.looks
            total.virtual_ms += result.virtual_ms
            total.most_epochs = max(total.most_epochs, result.epochs)
    return name, total
