"""Scripts of kraftsim's clients (tests/core/scripts): idempotent producers, a leasing producer, and
a reader by assignment.

Source: KIP-98, KIP-360, KIP-79, KIP-758, KAFKA-5494; the lease_pid draft.
"""

from collections.abc import Callable

import pytest

from kraftsim.clients.rules_consumer import ReaderPositions
from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
    FlushAsked,
    IdentityTaken,
    MetadataArrived,
    MetadataLost,
    OutgoingBatch,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProduceLost,
    ProducerEffect,
    ProducerIdArrived,
    ProducerIdLost,
    ProducerInput,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    RecordGivenUp,
    SendInitProducerId,
    SendMetadataRequest,
    SendProduce,
    Started,
    TimePassed,
    TopicPartition,
    WindowAnnounced,
)
from kraftsim.clients.rules_producer_variants import WindowedProducer
from kraftsim.lease_pid.rules_broker import Lease
from kraftsim.lease_pid.rules_producer import (
    Acknowledged,
    FencedInPartition,
    GivenUp,
    Leased,
    LeaseRefused,
    LeaseTaken,
    LeasingEffect,
    LeasingInput,
    LeasingProducer,
    LeasingSettings,
    MessageQueued,
    SendLeaseRequest,
    SendMessages,
    Waited,
    WriteLost,
    Written,
)
from protocol.errors import ErrorCode


class ProducerDriver:
    """A producer driven by lines such as "send a b" or "answer 0".

    Each record is a batch of its own unless it may linger.
    """

    def __init__(self) -> None:
        self.do_producer()

    def do_producer(self, *settings: str) -> None:
        given = {name: int(value) for name, _, value in (each.partition("=") for each in settings)}
        self.now_ms = 0
        self.producer = IdempotentProducer(ProducerSettings(**{"linger_ms": 0, **given}))
        self.requests: dict[int, SendProduce] = {}

    def do_windowed(self) -> None:
        """The producer of KIP-758's second phase."""
        self.do_producer("retry_backoff_ms=0")
        self.producer = WindowedProducer(ProducerSettings(linger_ms=0, retry_backoff_ms=0))

    def do_window(self, broker_id: str, *sequences: str) -> list[ProducerEffect]:
        """The number of sequences that may be in flight to a broker; none: it announces no
        window.
        """
        return self._step(WindowAnnounced(int(broker_id), int(sequences[0]) if sequences else None))

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        effects: list[ProducerEffect] = getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        return "\n".join(self._line(effect) for effect in effects)

    def do_start(self) -> list[ProducerEffect]:
        return self._step(Started())

    def do_id(self, producer_id: str, producer_epoch: str) -> list[ProducerEffect]:
        return self._step(ProducerIdArrived(int(producer_id), int(producer_epoch)))

    def do_no_id(self, error: str = "") -> list[ProducerEffect]:
        return self._step(ProducerIdLost(ErrorCode[error] if error else None))

    def do_leaders(self, *leaders: str) -> list[ProducerEffect]:
        return self._step(
            MetadataArrived(
                {_where(each.split("=")[0]): int(each.split("=")[1]) for each in leaders}
            )
        )

    def do_no_metadata(self) -> list[ProducerEffect]:
        return self._step(MetadataLost())

    def do_send(self, *keys: str) -> list[ProducerEffect]:
        """Records by key; "a:1" goes to partition 1, "a" to partition 0."""
        effects = []
        for each in keys:
            key, _, partition = each.partition(":")
            effects += self._step(
                RecordGiven(
                    OutgoingRecord(
                        where=_where(partition or "0"), key=key, value=b"v", timestamp_ms=0
                    )
                )
            )
        return effects

    def do_flush(self) -> list[ProducerEffect]:
        return self._step(FlushAsked())

    def do_at(self, now_ms: str) -> list[ProducerEffect]:
        self.now_ms = int(now_ms)
        return self._step(TimePassed())

    def do_answer(self, request_id: str, *said: str) -> list[ProducerEffect]:
        """A base offset, or the name of an error; for every partition of the request."""
        request = self.requests[int(request_id)]
        error, offset = (
            (ErrorCode.NONE, int(said[0])) if said[0].isdigit() else (ErrorCode[said[0]], -1)
        )
        answers = tuple(
            PartitionAnswer(where=batch.where, error_code=error, base_offset=offset)
            for batch in request.batches
        )
        return self._step(ProduceAnswered(request.request_id, answers))

    def do_lose(self, request_id: str) -> list[ProducerEffect]:
        return self._step(ProduceLost(int(request_id)))

    def _step(self, happened: ProducerInput) -> list[ProducerEffect]:
        return self.producer.step(happened, self.now_ms)

    def _line(self, effect: ProducerEffect) -> str:
        match effect:
            case SendInitProducerId():
                return "request a producer id"
            case SendMetadataRequest(topics):
                return f"refresh metadata of {', '.join(topics)}"
            case SendProduce():
                self.requests[effect.request_id] = effect
                return (
                    f"request {effect.request_id} to {effect.broker_id}: "
                    f"{', '.join(_batch(batch) for batch in effect.batches)}"
                )
            case IdentityTaken(identity):
                return f"continues as {identity.producer_id} epoch {identity.producer_epoch}"
            case RecordDelivered():
                return f"delivered {effect.record.key} at {effect.offset}"
            case RecordGivenUp():
                return f"failed {effect.record.key}: {effect.error_code.name}"


class LeasingDriver:
    """A producer that leases ids from partition 0: "hand a b", "leased 7 1 0", "written 0 2"; a
    request has two messages at most.
    """

    def __init__(self) -> None:
        self.do_producer()

    def do_producer(self, *traits: str) -> None:
        """`keeps-none`: a new id instead of a renewal; `knows ID`: an earlier incarnation held
        it.
        """
        self.now_ms = 0
        known = ((0, int(traits[traits.index("knows") + 1])),) if "knows" in traits else ()
        settings = LeasingSettings(
            expire_ms=9000,
            requests_max=2,
            messages_per_request=2,
            delivery_timeout_ms=60_000,
            renews="keeps-none" not in traits,
            known_ids=known,
        )
        self.producer = LeasingProducer(settings)

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        effects: list[LeasingEffect] = getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        return "\n".join(self._line(effect) for effect in effects)

    def do_hand(self, *keys: str) -> list[LeasingEffect]:
        return [
            effect for key in keys for effect in self._step(MessageQueued(0, key, b"", self.now_ms))
        ]

    def do_leased(
        self, producer_id: str, generation: str, sequence_number: str
    ) -> list[LeasingEffect]:
        lease = Lease(
            producer_id=int(producer_id),
            generation=int(generation),
            sequence_number=int(sequence_number),
            expire_ms=9000,
        )
        return self._step(Leased(0, lease))

    def do_not_leased(self, error: str = "") -> list[LeasingEffect]:
        return self._step(LeaseRefused(0, ErrorCode[error] if error else None))

    def do_written(self, request_id: str, taken: str, error: str = "NONE") -> list[LeasingEffect]:
        return self._step(
            Written(
                request_id=int(request_id), taken=int(taken), base_offset=0, error=ErrorCode[error]
            )
        )

    def do_lose(self, request_id: str) -> list[LeasingEffect]:
        return self._step(WriteLost(int(request_id)))

    def do_at(self, now_ms: str) -> list[LeasingEffect]:
        self.now_ms = int(now_ms)
        return self._step(Waited())

    def _step(self, happened: LeasingInput) -> list[LeasingEffect]:
        return self.producer.step(happened, self.now_ms)

    def _line(self, effect: LeasingEffect) -> str:
        match effect:
            case SendLeaseRequest(producer_id=producer_id):
                return f"lease {producer_id}"
            case SendMessages():
                keys = " ".join(each.key for each in effect.messages)
                return (
                    f"request {effect.request_id}: [{keys}] as {effect.producer_id} generation "
                    f"{effect.generation} from {effect.first_sequence}"
                )
            case LeaseTaken(lease=lease, is_new_id=is_new_id):
                return (
                    f"holds {lease.producer_id} generation {lease.generation}, next "
                    f"{lease.sequence_number}{', a new id' if is_new_id else ''}"
                )
            case Acknowledged(message):
                return f"delivered {message.key}"
            case GivenUp(message=message, error=error):
                return f"failed {message.key}: {error.name}"
            case FencedInPartition():
                return "is fenced"


class ReaderDriver:
    """A reader driven by lines such as "begins 0 5"."""

    def __init__(self) -> None:
        self.positions = ReaderPositions([])

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        getattr(self, f"do_{verb.replace('-', '_')}")(*words)
        left = self.positions.unfinished({_where("0"): 1, _where("1"): 2})
        lacks = [f"first {each.partition}" for each in self.positions.without_first_offset()]
        lacks += [f"end {each.partition}" for each in self.positions.without_end_offset()]
        fetches = [
            f"fetch {each.partition} from {self.positions.next_offset(each)} at {leader}"
            for leader, found in left.items()
            for each in found
        ]
        return "; ".join([*(["list offsets " + ", ".join(lacks)] if lacks else []), *fetches]) or (
            "done" if self.positions.is_done else "waits"
        )

    def do_read(self, *partitions: str) -> None:
        self.positions = ReaderPositions([_where(each) for each in partitions])

    def do_begins(self, partition: str, offset: str) -> None:
        self.positions.set_start(_where(partition), int(offset))

    def do_ends(self, partition: str, offset: str) -> None:
        self.positions.end_at(_where(partition), int(offset))

    def do_got(self, partition: str, next_offset: str) -> None:
        self.positions.advance(_where(partition), int(next_offset))

    def do_got_nothing(self, partition: str, high_watermark: str) -> None:
        self.positions.found_nothing(_where(partition), int(high_watermark))

    def do_out_of_range(self, partition: str) -> None:
        self.positions.start_over(_where(partition))


def _where(partition: str) -> TopicPartition:
    return TopicPartition("t", int(partition))


def _batch(batch: OutgoingBatch) -> str:
    assert batch.identity is not None, "sent batches have a producer id"
    keys = " ".join(record.key for record in batch.records)
    return (
        f"[{keys}] to {batch.where.partition} epoch {batch.identity.producer_epoch} sequence "
        f"{batch.base_sequence}"
    )


@pytest.mark.parametrize(
    "script",
    [
        "producer_start",
        "producer_five_in_flight",
        "producer_lost_response",
        "producer_lost_state",
        "producer_epoch_exhaustion",
        "producer_failed_batches",
        "producer_announced_window",
    ],
)
def test_producer_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, ProducerDriver().answer)


@pytest.mark.parametrize("script", ["lease_renewal", "lease_recovery"])
def test_leasing_producer_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, LeasingDriver().answer)


@pytest.mark.parametrize("script", ["reader_to_log_end", "reader_truncated_log"])
def test_reader_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, ReaderDriver().answer)
