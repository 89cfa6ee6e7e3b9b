"""The run itself: its faults, its phases, and violations."""

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


class MetadataLogBegun(Event):
    """The operator formatted a new quorum, whose metadata log begins at offset 0: from here on all
    events about a metadata log are about this one, the nth of the cluster (from 2).

    Nothing writes the former log, or reads it, any more. `controllers` are the names of the new
    ones, comma-separated.
    """

    metadata_log: int
    controllers: str


class OnlyRetriableErrorsExpected(Event):
    """From here on clients must receive only retriable errors, whatever happens to the nodes: the
    scenario declares it.
    """

    scenario: str


class ClientErrorsChecked(Event):
    """From here on every error of a client must be retriable, or have a cause that its workload
    provoked: `provoked_errors` are more codes that it provokes, comma-separated.
    """

    scenario: str
    provoked_errors: str


class FencedProducersExpected(Event):
    """From here on transactions time out, and their producers must be able to tell: the scenario
    declares it.
    """

    scenario: str


class FirstBatchesOvertaken(Event):
    """So many first records of a producer are behind later ones in a new topic: its leader refused
    them, and then accepted a first sequence other than 0, as releases up to 4.4 do (KAFKA-15591).
    """

    topic: str
    records: int


class FaultArmed(Event):
    """A fault was armed: it waits for its time or trigger."""

    fault: str
    target: str
    trigger: str


class FaultInjected(Event):
    """A fault was injected at a target."""

    fault: str
    target: str
    trigger: str


class FaultEnded(Event):
    """A lasting fault ended."""

    fault: str
    target: str


class FaultTookEffect(Event):
    """A fault is effective: for example, bytes were lost, or a connection with requests in flight
    was reset.
    """

    fault: str
    target: str
    effect: str


class Settled(Event):
    """How long something took to settle after all faults were healed.

    `what`: 'leader', 'brokers', 'controllers', 'calls', 'replicas', or another wait of a course of
    steps.

    If `is_settled` is false it had not settled after `limit_ms`, and the run ended there.
    """

    what: str
    after_ms: int
    limit_ms: int
    is_settled: bool


class InvariantViolated(Event):
    """An online invariant check found a violation.

    `witnesses` names event ids 'node.incarnation.n', comma-separated.
    """

    invariant: str
    message: str
    witnesses: str
