"""The run itself: faults that were done to it, phases, and what an oracle saw."""

from kraftsim.events.event import Event


class RunStarted(Event):
    """The scenario began."""

    scenario: str
    mode: str
    seed: int


class RunEnded(Event):
    """The scenario is over. `outcome`: 'ok', 'violated', 'failed'."""

    outcome: str


class PhaseBegan(Event):
    """The scenario entered a phase, for example 'faults' or 'liveness'."""

    phase: str


class OnlyRetriableErrorsExpected(Event):
    """From here on clients shall be told nothing that does not pass by itself: so the story has it, whatever happens to the nodes."""

    story: str


class FaultArmed(Event):
    """A fault waits for its time or trigger."""

    fault: str
    target: str
    trigger: str


class FaultFired(Event):
    """A fault was done to a target."""

    fault: str
    target: str
    trigger: str


class FaultEnded(Event):
    """A fault that lasts was undone."""

    fault: str
    target: str


class FaultBit(Event):
    """A fault changed an outcome: for example bytes were lost, a connection with requests under way was cut."""

    fault: str
    target: str
    effect: str


class Settled(Event):
    """How long something took to be as it should after all faults were healed. `what`: 'leader', 'brokers', 'controllers', 'calls', 'replicas'.

    Where `is_settled` is false it was not so after `limit_ms`, and the run ended there.
    """

    what: str
    after_ms: int
    limit_ms: int
    is_settled: bool


class InvariantViolated(Event):
    """An online oracle saw a violation. `witnesses` names event ids 'node.incarnation.n', comma-separated."""

    invariant: str
    message: str
    witnesses: str
