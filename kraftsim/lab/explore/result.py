"""The result of one run: invariant results, errors, and the command that repeats it."""

import shlex

import msgspec


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one scenario run.

    `violations` are one line each; `trouble` is what aborted the run (lost liveness, a bug in a
    node), if anything did. `seconds` are virtual in simulation. `faults` has counts by kind: armed,
    fired, effective. `events_sha256` is over the event log of all nodes, in simulation only.
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
        """The command that repeats the run; if the run was kept, the output directory of the
        command is beside that of this run.
        """
        words, option, _ = self.command.rpartition(" --out ")
        return (
            f"{words}{option}{shlex.quote(f'{self.out}-again')}"
            if option and self.out is not None
            else self.command
        )

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        where = f"{self.scenario} ({self.mode}, seed {self.seed})"
        text = [f"{where}: {self.outcome}, {self.event_count} events in {self.seconds:.1f} s"]
        text += [f"  {name}: {verdict}" for name, verdict in self.verdicts.items()]
        for kind, (armed, fired, effective) in self.faults.items():
            text.append(f"  fault {kind}: {armed} armed, {fired} fired, {effective} effective")
        text += [f"  violated: {violation}" for violation in self.violations]
        if self.trouble is not None:
            text.append(f"  trouble: {self.trouble}")
        if self.violations or self.trouble is not None:
            text.append(f"  replay: {self.replay_line}")
        if self.out is not None:
            can_shrink = (
                self.outcome != "ok"
                and self.events_sha256 is not None
                and (self.violations or self.trouble is not None)
            )
            text.append(
                f"  kept in {self.out}; next: kraftsim {'shrink' if can_shrink else 'analyze'} "
                f"{self.out}"
            )
        return text
