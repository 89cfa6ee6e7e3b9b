"""What came of one run: verdicts, what broke, and how to see it again."""

import shlex

import msgspec


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one scenario run.

    `violations` are one line each; `trouble` is what ended the run before its time (liveness lost, a node's own mistake), if anything did.
    `seconds` are virtual in simulation. `faults` counts fault kinds: armed, fired, bit. `events_sha256` is over the event log of all nodes, in
    simulation only.
    """

    scenario: str
    mode: str
    seed: int
    outcome: str
    violations: tuple[str, ...]
    invariants_violated: tuple[str, ...]
    verdicts: dict[str, str]
    trouble: str | None
    faults: dict[str, tuple[int, int, int]]
    event_count: int
    seconds: float
    events_sha256: str | None
    out: str | None
    command: str

    @property
    def replay_line(self) -> str:
        """The command that plays the run again; if the run was kept, its directory stands beside the one where this run lies."""
        words, option, _ = self.command.rpartition(" --out ")
        return f"{words}{option}{shlex.quote(f'{self.out}-again')}" if option and self.out is not None else self.command

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        where = f"{self.scenario} ({self.mode}, seed {self.seed})"
        text = [f"{where}: {self.outcome}, {self.event_count} events in {self.seconds:.1f} s"]
        text += [f"  {name}: {verdict}" for name, verdict in self.verdicts.items()]
        for kind, (armed, fired, bit) in self.faults.items():
            text.append(f"  fault {kind}: {armed} armed, {fired} fired, {bit} bit")
        text += [f"  violated: {violation}" for violation in self.violations]
        if self.trouble is not None:
            text.append(f"  trouble: {self.trouble}")
        if self.violations or self.trouble is not None:
            text.append(f"  replay: {self.replay_line}")
        if self.out is not None:
            can_shrink = self.outcome != "ok" and self.events_sha256 is not None and (self.violations or self.trouble is not None)
            text.append(f"  kept in {self.out}; next: kraftsim {'shrink' if can_shrink else 'analyze'} {self.out}")
        return text
