"""Producer ids as KIP-730's text specifies or rejects them: each variant, and the problems that the
text predicts.

Source: KIP-730.
"""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal
from kraftsim.events.event import Event
from kraftsim.producer_ids.events import ProducerIdBlockRequested
from kraftsim.producer_ids.rules_allocation import (
    BLOCK_SIZE_CONFIG,
    ProducerIdBlock,
    RepeatingProducerIdControl,
    ResizableProducerIdControl,
    block_behind,
)
from kraftsim.producer_ids.rules_block_clients import (
    BROKER_BITS,
    COUNTED_AHEAD,
    COUNTER_BITS,
    EagerBlockClient,
    EndBroker,
    OnDemandBlockClient,
    PrefetchingBlockClient,
    TerminatingBlockClient,
    UncoordinatedSource,
)
from protocol.errors import ErrorCode
from protocol.metadata.controller import ProducerIdsRecord
from tools.claims.recording import Figures


def given(
    decision: object, *controls: ResizableProducerIdControl | RepeatingProducerIdControl
) -> ProducerIdBlock:
    """Replay a decision, and return the block."""
    assert isinstance(decision, Decision), decision
    for control in controls:
        for record in decision.records:
            assert isinstance(record, ProducerIdsRecord)
            control.replay(record)
    assert isinstance(decision.result, ProducerIdBlock)
    return decision.result


def client(kind: type[PrefetchingBlockClient], size: int = 1000) -> PrefetchingBlockClient:
    """A broker's source with one block available."""
    made = kind(broker_epoch=lambda: 5, emit=lambda event: None)
    made.claim(0)
    made.on_response(ErrorCode.NONE, 0, size, 0)
    return made


def uncoordinated(broker_id: int, disk: list[int]) -> UncoordinatedSource:
    return UncoordinatedSource(
        broker_id=broker_id, counted=disk[-1], store=disk.append, emit=lambda event: None
    )


def test_blocks_are_contiguous_across_controllers_with_other_sizes(figures: Figures) -> None:
    """The response contains the size, so it can change while brokers hold blocks."""
    first = ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True)
    second = ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True)
    second.resize(10)
    blocks = []
    for size in (1000, 1, 7, 100_000):
        first.resize(size)
        blocks.append(given(first.decide_allocate(1, 5), first, second))
    blocks.append(given(second.decide_allocate(2, 5), first, second))
    assert [each.size for each in blocks] == [1000, 1, 7, 100_000, 10]
    assert [each.next_producer_id for each in blocks[:-1]] == [
        each.first_producer_id for each in blocks[1:]
    ]
    figures(
        sizes=[each.size for each in blocks],
        next_ids=[each.next_producer_id for each in blocks],
    )


def test_last_block_is_the_last_complete_one_of_the_current_size(figures: Figures) -> None:
    control = ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True)
    control.replay(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=2**63 - 1 - 10))
    ids_left = 2**63 - 1 - control.next_producer_id
    refused = []
    for size in (1000, 11):
        control.resize(size)
        assert isinstance(control.decide_allocate(1, 5), Refusal)
        refused.append(size)
    control.resize(10)
    last = given(control.decide_allocate(1, 5), control)
    assert last.next_producer_id == 2**63 - 1
    figures(ids_left=ids_left, refused_with_blocks_of=refused[0], given_with_blocks_of=last.size)


def test_next_block_is_prefetched_at_ninety_percent_of_any_size(figures: Figures) -> None:
    for size, mark in ((1000, 900), (10, 9), (1, 0)):
        source = client(PrefetchingBlockClient, size)
        asked = []
        for producer_id in range(size):
            result, effects = source.claim(0)
            assert result == producer_id
            if effects:
                asked.append(producer_id)
        assert asked == [mark]
        figures(**{f"asked_at_id_of_{size}": asked[0]})


def test_fetching_only_when_exhausted_rejects_a_client_per_block(figures: Figures) -> None:
    source = client(OnDemandBlockClient, 10)
    assert [source.claim(0) for _ in range(10)] == [(each, []) for each in range(10)]
    refused, effects = source.claim(0)
    assert isinstance(refused, Refusal) and refused.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(effects) == 1
    figures(error_when_nothing_is_left=int(refused.error))


def test_prefetching_with_the_first_id_leaves_the_whole_block_of_time() -> None:
    source = client(EagerBlockClient, 10)
    result, effects = source.claim(0)
    assert result == 0 and len(effects) == 1
    source.on_response(ErrorCode.NONE, 10, 10, 0)
    assert [source.claim(0).result for _ in range(19)] == list(range(1, 20))


def test_request_with_the_first_id_names_it() -> None:
    """The client of the id is answered later, and the request has its cause nevertheless."""
    for kind, size in ((EagerBlockClient, 10), (PrefetchingBlockClient, 1)):
        emitted: list[Event] = []
        source = kind(broker_epoch=lambda: 5, emit=emitted.append)
        source.claim(0)
        source.on_response(ErrorCode.NONE, 70, size, 0)
        assert source.claim(0).result == 70
        assert [
            event.last_producer_id
            for event in emitted
            if isinstance(event, ProducerIdBlockRequested)
        ] == [-1, 70]


def test_authorization_error_ends_the_broker_only_in_the_kip_text(figures: Figures) -> None:
    for kind, is_fatal in ((TerminatingBlockClient, True), (PrefetchingBlockClient, False)):
        for error in (
            ErrorCode.STALE_BROKER_EPOCH,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            source = kind(broker_epoch=lambda: 5, emit=lambda event: None)
            source.claim(0)
            effects = source.on_response(error, 0, 0, 0)
            ends = [effect for effect in effects if isinstance(effect, EndBroker)]
            assert len(ends) == (is_fatal and error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                figures(
                    **{"text_ends": bool(ends)}
                    if kind is TerminatingBlockClient
                    else {
                        "shipped_ends": bool(ends),
                    },
                )
            assert len(source.claim(60).effects) == 1, (
                "the released broker retries after its backoff, and so would this one if it were "
                "running"
            )


# An idempotent request
# --------------------------------------------------------------------------------------------------


def test_retried_request_returns_the_same_block() -> None:
    control = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    block = given(control.decide_allocate(1, 5, 1), control)
    assert (
        given(control.decide_allocate(1, 5, 1), control) == block
        and control.next_producer_id == 1000
    )
    assert given(control.decide_allocate(1, 5, 2), control).first_producer_id == 1000
    assert given(control.decide_allocate(2, 5, 1), control).first_producer_id == 2000


def test_request_forgotten_at_failover_wastes_a_block() -> None:
    first = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    second = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    given(first.decide_allocate(1, 5, 1), first, second)
    assert given(second.decide_allocate(1, 5, 1), second).first_producer_id == 1000


def test_uncommitted_block_is_discarded_with_its_request() -> None:
    journal = Journal()
    control = RepeatingProducerIdControl(journal, lambda broker_id, epoch: True)
    journal.mark(10)
    given(control.decide_allocate(1, 5, 1), control)
    journal.revert_to(10)
    journal.mark(11)
    assert given(control.decide_allocate(2, 5, 1), control).first_producer_id == 0
    assert given(control.decide_allocate(1, 5, 1), control).first_producer_id == 1000, (
        "its first block now belongs to another broker"
    )


def test_cluster_default_block_size_overrides_the_controllers_properties() -> None:
    configs: dict[str, str] = {}
    control = ResizableProducerIdControl(
        Journal(), lambda broker_id, epoch: True, configs.get, size=50
    )
    sizes = []
    for value in (None, "7", "0", "seven", str(2**31), "100000"):
        configs |= {BLOCK_SIZE_CONFIG: value} if value is not None else {}
        sizes.append(given(control.decide_allocate(1, 5), control).size)
    assert sizes == [50, 7, 50, 50, 50, 100_000]


def test_restarted_request_counter_in_the_same_epoch_repeats_ids(figures: Figures) -> None:
    """The class of bugs for which KIP-730 rejected it: the released controller allocates another
    block.
    """
    control = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    before = given(control.decide_allocate(1, 5, 1), control)
    after_a_restart = given(control.decide_allocate(1, 5, 1), control)
    assert after_a_restart == before
    assert given(control.decide_allocate(1, 5), control) != before
    figures(ids_given_again=after_a_restart.size)


def test_requests_in_a_loop_with_one_number_take_one_block() -> None:
    control = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    for _ in range(1000):
        given(control.decide_allocate(1, 5, 1), control)
    assert control.next_producer_id == 1000


def test_two_machines_with_one_broker_id_and_epoch_allocate_the_same_ids(figures: Figures) -> None:
    """A broker epoch is an offset of the log: a quorum that lost its log counts epochs again, and
    repeats the response it remembers.
    """
    ids = {}
    for numbers_each_request, control in (
        (True, RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)),
        (False, ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True)),
    ):
        machines = [
            PrefetchingBlockClient(broker_epoch=lambda: 5, emit=lambda event: None)
            for _ in range(2)
        ]
        blocks = []
        for machine in machines:
            machine.claim(0)
            block = given(
                control.decide_allocate(1, 5, 1 if numbers_each_request else None), control
            )
            machine.on_response(ErrorCode.NONE, block.first_producer_id, block.size, 0)
            blocks.append({machine.claim(0).result for _ in range(500)})
        ids[numbers_each_request] = len(blocks[0] & blocks[1])
    assert ids == {True: 500, False: 0}
    figures(ids_of_two_brokers=ids[True], ids_of_two_brokers_shipped=ids[False])


# Ids without coordination
# --------------------------------------------------------------------------------------------------


def test_uncoordinated_brokers_never_overlap_and_resume_after_their_last_id(
    figures: Figures,
) -> None:
    disks = {broker_id: [0] for broker_id in (0, 1, 2**BROKER_BITS - 1)}
    ids = []
    for broker_id, disk in disks.items():
        for _ in range(3):
            source = uncoordinated(broker_id, disk)
            ids += [source.claim(0).result for _ in range(COUNTED_AHEAD + 5)]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(each, int) and 0 <= each < 2**63 for each in ids)
    assert disks[1][-1] == 6 * COUNTED_AHEAD
    figures(ids_of_three_brokers=len(ids), given_twice=len(ids) - len(set(ids)))


def test_uncoordinated_ids_can_overlap_with_zookeepers_range() -> None:
    """Only a broker with id 0 starts within it, and 0 is a valid id."""
    block = block_behind(b'{"version":1,"broker":2,"block_start":"4000","block_end":"4999"}')
    assert not isinstance(block, Refusal)
    allocated = range(block.first_producer_id)
    again = []
    for broker_id in (0, 1):
        source = uncoordinated(broker_id, [0])
        again.append(sum(source.claim(0).result in allocated for _ in range(6000)))
    assert again == [len(allocated), 0] == [5000, 0]


def test_uncoordinated_ids_cannot_represent_every_broker(figures: Figures) -> None:
    """An id that exceeds the bits, no id at all, and a counter that has used up its own bits."""
    misfits = ((-1, [0]), (2**BROKER_BITS, [0]), (1, [1 << COUNTER_BITS]))
    results = [uncoordinated(broker_id, disk).claim(0).result for broker_id, disk in misfits]
    assert all(isinstance(each, Refusal) for each in results)
    assert (
        uncoordinated(2**BROKER_BITS - 1, [0]).claim(0).result
        == (2**BROKER_BITS - 1) << COUNTER_BITS
    )
    figures(
        misfits=len(misfits),
        refused_without_an_id=sum(isinstance(each, Refusal) for each in results),
    )


def test_uncoordinated_ids_repeat_after_a_lost_disk() -> None:
    """The same ids again, undetected; with its disk the broker continues after its last id."""
    disk = [0]
    incarnations = [uncoordinated(3, stored) for stored in (disk, [0])]
    before, after_a_loss = (
        {incarnation.claim(0).result for _ in range(1000)} for incarnation in incarnations
    )
    continues = uncoordinated(3, disk)
    after_a_restart = {continues.claim(0).result for _ in range(1000)}
    assert after_a_loss == before and not after_a_restart & before
