"""Producer ids as KIP-730's text wants or rejects them: each variant, and the trouble that the text foresees.   Source: KIP-730."""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.producer_ids.block import ProducerIdBlock
from kraftsim.core.producer_ids.control_variants import BLOCK_SIZE_CONFIG, RepeatingProducerIdControl, ResizableProducerIdControl
from kraftsim.core.producer_ids.prefetching_block_client import PrefetchingBlockClient
from kraftsim.core.producer_ids.source import EndBroker
from kraftsim.core.producer_ids.source_variants import (
    BROKER_BITS,
    COUNTED_AHEAD,
    COUNTER_BITS,
    EagerBlockClient,
    OnDemandBlockClient,
    TerminatingBlockClient,
    UncoordinatedSource,
)
from kraftsim.core.producer_ids.zookeeper_blocks import block_behind
from kraftsim.core.timeline import Journal
from protocol.errors import ErrorCode
from protocol.metadata.m15_producer_ids import ProducerIdsRecord


def given(decision: object, *controls: ResizableProducerIdControl | RepeatingProducerIdControl) -> ProducerIdBlock:
    """Replay what was decided, and return the block."""
    assert isinstance(decision, Decision), decision
    for control in controls:
        for record in decision.records:
            assert isinstance(record, ProducerIdsRecord)
            control.replay(record)
    assert isinstance(decision.result, ProducerIdBlock)
    return decision.result


def client(kind: type[PrefetchingBlockClient], size: int = 1000) -> PrefetchingBlockClient:
    """A broker's source with one block in stock."""
    made = kind(broker_epoch=lambda: 5, note=lambda event: None)
    made.claim(0)
    made.take_effects()
    made.on_response(ErrorCode.NONE, 0, size, 0)
    return made


def uncoordinated(broker_id: int, disk: list[int]) -> UncoordinatedSource:
    return UncoordinatedSource(broker_id=broker_id, counted=disk[-1], store=disk.append, note=lambda event: None)


def test_blocks_of_any_size_follow_each_other_and_controllers_of_other_sizes_go_on_behind_them(figures) -> None:
    """The size travels in the answer, so that it can change while brokers hold blocks."""
    first = ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True)
    second = ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True)
    second.resize(10)
    blocks = []
    for size in (1000, 1, 7, 100_000):
        first.resize(size)
        blocks.append(given(first.decide_allocate(1, 5), first, second))
    blocks.append(given(second.decide_allocate(2, 5), first, second))
    assert [each.size for each in blocks] == [1000, 1, 7, 100_000, 10]
    assert [each.next_producer_id for each in blocks[:-1]] == [each.first_producer_id for each in blocks[1:]]
    figures(
        sizes=[each.size for each in blocks],
        next_ids=[each.next_producer_id for each in blocks],
    )


def test_the_last_block_is_the_last_whole_one_of_the_size_that_holds(figures) -> None:
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


def test_a_block_of_any_size_is_spent_and_the_next_one_asked_for_at_nine_tenths(figures) -> None:
    for size, mark in ((1000, 900), (10, 9), (1, 0)):
        source = client(PrefetchingBlockClient, size)
        asked = []
        for producer_id in range(size):
            assert source.claim(0) == producer_id
            if source.take_effects():
                asked.append(producer_id)
        assert asked == [mark]
        figures(**{f"asked_at_id_of_{size}": asked[0]})


def test_who_asks_only_when_nothing_is_left_sends_a_client_away_for_each_block(figures) -> None:
    source = client(OnDemandBlockClient, 10)
    assert [source.claim(0) for _ in range(10)] == list(range(10)) and source.take_effects() == []
    refused = source.claim(0)
    assert isinstance(refused, Refusal) and refused.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(source.take_effects()) == 1
    figures(error_when_nothing_is_left=int(refused.error))


def test_who_asks_with_the_first_id_has_the_whole_block_for_waiting() -> None:
    source = client(EagerBlockClient, 10)
    assert source.claim(0) == 0 and len(source.take_effects()) == 1
    source.on_response(ErrorCode.NONE, 10, 10, 0)
    assert [source.claim(0) for _ in range(19)] == list(range(1, 20))


def test_to_have_no_right_ends_the_broker_of_the_text_and_only_that(figures) -> None:
    for kind, is_fatal in ((TerminatingBlockClient, True), (PrefetchingBlockClient, False)):
        for error in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            source = kind(broker_epoch=lambda: 5, note=lambda event: None)
            source.claim(0)
            source.take_effects()
            source.on_response(error, 0, 0, 0)
            ends = [effect for effect in source.take_effects() if isinstance(effect, EndBroker)]
            assert len(ends) == (is_fatal and error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                figures(
                    **{"text_ends": bool(ends)}
                    if kind is TerminatingBlockClient
                    else {
                        "shipped_ends": bool(ends),
                    },
                )
            source.claim(60)
            assert len(source.take_effects()) == 1, "the shipped broker asks again after its pause, and so would this one if it lived"


# A request that is answered twice alike --------------------------------------------------------------------------------------------------------


def test_a_request_that_comes_again_has_the_same_block_and_burns_none() -> None:
    control = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    block = given(control.decide_allocate(1, 5, 1), control)
    assert given(control.decide_allocate(1, 5, 1), control) == block and control.next_producer_id == 1000
    assert given(control.decide_allocate(1, 5, 2), control).first_producer_id == 1000
    assert given(control.decide_allocate(2, 5, 1), control).first_producer_id == 2000


def test_what_the_controller_forgets_at_a_failover_burns_a_block_after_all() -> None:
    first = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    second = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    given(first.decide_allocate(1, 5, 1), first, second)
    assert given(second.decide_allocate(1, 5, 1), second).first_producer_id == 1000


def test_a_block_that_was_not_committed_is_forgotten_with_its_request() -> None:
    journal = Journal()
    control = RepeatingProducerIdControl(journal, lambda broker_id, epoch: True)
    journal.mark(10)
    given(control.decide_allocate(1, 5, 1), control)
    journal.revert_to(10)
    journal.mark(11)
    assert given(control.decide_allocate(2, 5, 1), control).first_producer_id == 0
    assert given(control.decide_allocate(1, 5, 1), control).first_producer_id == 1000, "its first block is another broker's now"


def test_the_size_that_is_set_for_all_brokers_goes_before_the_one_that_a_controller_was_told() -> None:
    told: dict[str, str] = {}
    control = ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True, told.get, size=50)
    sizes = []
    for value in (None, "7", "0", "seven", str(2**31), "100000"):
        told |= {BLOCK_SIZE_CONFIG: value} if value is not None else {}
        sizes.append(given(control.decide_allocate(1, 5), control).size)
    assert sizes == [50, 7, 50, 50, 50, 100_000]


def test_a_broker_that_counts_anew_in_the_same_epoch_is_given_ids_that_it_has_given_away(figures) -> None:
    """The class of bugs for which KIP-730 rejected it: the shipped controller gives another block."""
    control = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    before = given(control.decide_allocate(1, 5, 1), control)
    after_a_restart = given(control.decide_allocate(1, 5, 1), control)
    assert after_a_restart == before
    assert given(control.decide_allocate(1, 5), control) != before
    figures(ids_given_again=after_a_restart.size)


def test_a_broker_that_asks_in_a_loop_with_one_number_takes_one_block() -> None:
    control = RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)
    for _ in range(1000):
        given(control.decide_allocate(1, 5, 1), control)
    assert control.next_producer_id == 1000


def test_two_machines_with_one_broker_id_and_a_reused_epoch_give_the_same_ids_to_their_clients(figures) -> None:
    """A broker epoch is an offset of the log: a quorum that lost its log counts epochs again, and its memory of requests says it all."""
    ids = {}
    for numbers_each_request, control in (
        (True, RepeatingProducerIdControl(Journal(), lambda broker_id, epoch: True)),
        (False, ResizableProducerIdControl(Journal(), lambda broker_id, epoch: True)),
    ):
        machines = [PrefetchingBlockClient(broker_epoch=lambda: 5, note=lambda event: None) for _ in range(2)]
        told = []
        for machine in machines:
            machine.claim(0)
            machine.take_effects()
            block = given(control.decide_allocate(1, 5, 1 if numbers_each_request else None), control)
            machine.on_response(ErrorCode.NONE, block.first_producer_id, block.size, 0)
            told.append({machine.claim(0) for _ in range(500)})
        ids[numbers_each_request] = len(told[0] & told[1])
    assert ids == {True: 500, False: 0}
    figures(ids_of_two_brokers=ids[True], ids_of_two_brokers_shipped=ids[False])


# Ids that nobody is asked for ------------------------------------------------------------------------------------------------------------------


def test_brokers_that_ask_nobody_never_meet_and_come_back_behind_what_they_have_given(figures) -> None:
    disks = {broker_id: [0] for broker_id in (0, 1, 2**BROKER_BITS - 1)}
    ids = []
    for broker_id, disk in disks.items():
        for _ in range(3):
            source = uncoordinated(broker_id, disk)
            ids += [source.claim(0) for _ in range(COUNTED_AHEAD + 5)]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(each, int) and 0 <= each < 2**63 for each in ids)
    assert disks[1][-1] == 6 * COUNTED_AHEAD
    figures(ids_of_three_brokers=len(ids), given_twice=len(ids) - len(set(ids)))


def test_its_first_trouble_is_the_range_that_zookeeper_has_given_away() -> None:
    """Only a broker with id 0 begins within it, and one may be called so."""
    given_away = range(block_behind(b'{"version":1,"broker":2,"block_start":"4000","block_end":"4999"}').first_producer_id)
    again = []
    for broker_id in (0, 1):
        source = uncoordinated(broker_id, [0])
        again.append(sum(source.claim(0) in given_away for _ in range(6000)))
    assert again == [len(given_away), 0] == [5000, 0]


def test_its_second_trouble_is_a_broker_that_does_not_fit(figures) -> None:
    """An id beyond the bits, no id at all, and a counter that has used up its own bits."""
    misfits = ((-1, [0]), (2**BROKER_BITS, [0]), (1, [1 << COUNTER_BITS]))
    told = [uncoordinated(broker_id, disk).claim(0) for broker_id, disk in misfits]
    assert all(isinstance(each, Refusal) for each in told)
    assert uncoordinated(2**BROKER_BITS - 1, [0]).claim(0) == (2**BROKER_BITS - 1) << COUNTER_BITS
    figures(misfits=len(misfits), refused_without_an_id=sum(isinstance(each, Refusal) for each in told))


def test_its_third_trouble_is_a_disk_that_is_lost() -> None:
    """The same ids once more, and nobody notices; a disk that stays lets it go on behind what it has given."""
    disk = [0]
    lives = [uncoordinated(3, told) for told in (disk, [0])]
    before, after_a_loss = ({life.claim(0) for _ in range(1000)} for life in lives)
    goes_on = uncoordinated(3, disk)
    after_a_restart = {goes_on.claim(0) for _ in range(1000)}
    assert after_a_loss == before and not after_a_restart & before
