"""Random faults of requests: every API of a fault space, every action, and only errors that a
server of Apache Kafka answers there.
"""

from dataclasses import replace
from importlib import import_module
from random import Random

import pytest

from kraftsim.cluster.scenario import Mode, Scenario, scenario, scenarios
from kraftsim.events.catalogue import KINDS as EVENTS
from kraftsim.lab.explore.request import faults_of
from kraftsim.lab.faults.fault import AtTime, Fault, OnEvent, from_json, to_json
from kraftsim.lab.faults.fault_space import (
    TRANSACTION_APIS,
    WRITER_APIS,
    FaultSpace,
    cluster_fault_space,
)
from kraftsim.lab.faults.kinds.request_faults import HERE, KIND, TEXT
from kraftsim.lab.faults.possible_errors import TABLE, possible_errors
from kraftsim.lab.faults.random_contact_faults import draw_contact_faults
from kraftsim.lab.faults.random_faults import draw_faults
from kraftsim.lab.faults.random_request_faults import (
    REVEALING,
    WAYS,
    RequestWay,
    apis_of,
    draw_request_faults,
    errors_at,
)
from kraftsim.lab.faults.request_fault_text import parse_request_fault
from kraftsim.lab.faults.rules_error_responses import error_response
from kraftsim.lab.faults.rules_request_faults import RequestAction, RequestFault
from protocol import request_class
from protocol.api_keys import ApiKey
from protocol.codec.tree import layout_of
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.registry import versions_of

SPACE = cluster_fault_space(
    controllers=3,
    brokers=3,
    clients=("writer-1", "copier-1"),
    apis=(*WRITER_APIS, *TRANSACTION_APIS),
    brokers_keep_records=True,
    brokers_replicate=True,
    fault_seconds=6.0,
)
SEEDS = range(600)
SEARCHED = [each for each in scenarios() if each.fault_space is not None]


def drawn(space: FaultSpace = SPACE, seeds: range = SEEDS) -> list[Fault]:
    return [
        fault for seed in seeds for fault in draw_request_faults(Random(f"{seed}/requests"), space)
    ]


def asked(fault: Fault) -> RequestFault:
    return parse_request_fault(str(fault.params[TEXT]))


def test_other_faults_of_a_seed_stay_as_they_are() -> None:
    """So a seed that found something before still has the faults that found it."""
    quorum = scenario("quorum_under_faults")
    assert quorum.fault_space is not None
    both = 0
    for seed in range(60):
        faults = faults_of(quorum, seed, Mode.SIM)
        others = tuple(fault for fault in faults if fault.kind != KIND)
        own = quorum.faults(Random(f"{seed}/harness/1/faults"), Mode.SIM)
        key = f"{seed}/{quorum.name}/1"
        random_faults = draw_faults(Random(f"{key}/swarm"), quorum.fault_space)
        contacts = tuple(
            fault
            for fault in draw_contact_faults(Random(f"{key}/first contacts"), quorum.fault_space)
            if fault.kind != KIND
        )
        drawn_apart = (*random_faults, *contacts)
        assert others in (own, drawn_apart, (*own, *drawn_apart))
        both += 0 < len(others) < len(faults)
    assert both > 10


def test_draws_are_plain_data_about_apis_of_the_space() -> None:
    faults = drawn()
    assert from_json(to_json(faults)) == faults
    assert {fault.kind for fault in faults} == {KIND}
    keys = {api.key for api in apis_of(SPACE)}
    assert {asked(fault).api for fault in faults} == keys
    assert not drawn(replace(SPACE, apis=()))


def test_every_api_gets_every_action_and_every_error_of_its_table() -> None:
    faults = [asked(fault) for fault in drawn(seeds=range(4000))]
    ways = {(fault.api, fault.action, fault.is_of_replies) for fault in faults}
    for api in apis_of(SPACE):
        for way in WAYS:
            if way.action is not RequestAction.ERROR:
                assert (api.key, way.action, way.is_done) in ways, (api, way)
    errors = {(fault.api, fault.error, fault.done) for fault in faults}
    for api in apis_of(SPACE):
        for done in (False, True):
            for error in errors_at(api, RequestWay(RequestAction.ERROR, is_done=done), SPACE):
                assert (api.key, error.code, done) in errors, (api, error)


def test_fatal_errors_are_drawn_only_where_the_workload_survives_them() -> None:
    fatal = {
        (int(key), int(error.code))
        for (key, _, _), found in TABLE.items()
        for error in found.errors
        if error.is_fatal
    } - {
        (int(key), int(error.code))
        for (key, _, _), found in TABLE.items()
        for error in found.errors
        if not error.is_fatal
    }
    for may in ((), ("copier-1",)):
        faults = list(map(asked, drawn(replace(SPACE, may_answer_fatal=may))))
        found = [fault for fault in faults if (fault.api, fault.error) in fatal]
        assert bool(found) == bool(may)
        assert {fault.client_id for fault in found} == {f"{host}*" for host in may}


def test_late_copies_are_only_of_requests_that_they_do_not_undo() -> None:
    """No next request would repair what a copy of one of the others has undone."""
    space = scenario("zookeeper_faults_under_load").fault_space
    assert space is not None
    copies = [
        fault
        for fault in map(asked, drawn(space, range(2000)))
        if fault.action is RequestAction.DUPLICATE
    ]
    at_once = {fault.api for fault in copies} - {fault.api for fault in copies if fault.delay_ms}
    assert at_once == {ApiKey.UPDATE_METADATA}


def test_errors_are_only_for_the_servers_and_senders_that_the_table_has() -> None:
    """A follower is not answered what a member of the quorum is, though both send Fetch."""
    for fault in map(asked, drawn()):
        assert fault.node is not None and fault.sender is not None
        if fault.action is not RequestAction.ERROR:
            continue
        servers = "controllers" if fault.node.startswith("controller") else "brokers"
        senders = fault.sender.partition("-")[0].removesuffix("s") + "s"
        assert fault.api is not None
        listed = possible_errors(fault.api, senders, servers).errors
        assert any(
            each.code == fault.error and each.is_done == fault.done and not each.is_fatal
            for each in listed
        )


def test_a_fault_begins_at_a_time_or_at_what_happens() -> None:
    faults = drawn()
    types = {type(fault.trigger) for fault in faults}
    assert len(types) == 5
    here = [fault for fault in faults if fault.params.get(HERE)]
    assert here and not any(isinstance(fault.trigger, AtTime) for fault in here)


def test_revealing_events_exist_with_their_fields() -> None:
    """A trigger on an event that is never emitted would never fire."""
    for events in REVEALING.values():
        for kind, fields in events:
            assert set(fields) <= set(EVENTS[kind].__struct_fields__)
    kinds = {fault.trigger.kind for fault in drawn() if isinstance(fault.trigger, OnEvent)}
    assert {"TransactionStateChanged", "PendingOffsetAdded", "MarkerAppended"} <= kinds


@pytest.mark.parametrize("each", SEARCHED, ids=lambda each: each.name)
def test_table_has_every_api_of_every_fault_space(each: Scenario) -> None:
    """The table says what its servers answer, or why there is no error to answer."""
    assert each.fault_space is not None
    for api in apis_of(each.fault_space):
        found = possible_errors(api.key, api.clients, api.servers)
        assert found.errors or found.reason, api


@pytest.mark.parametrize("place", TABLE, ids=lambda place: f"{place[0].name}-{'-'.join(place[1:])}")
def test_errors_of_an_api_are_in_the_list_of_its_message(place: tuple[int, str, str]) -> None:
    """That list is what Apache Kafka's handlers answer, and is kept beside the message."""
    module = import_module(request_class(int(place[0])).__module__)
    codes = {error.code for error in TABLE[place].errors}  # type: ignore[index]  # as below
    assert codes <= set(module.ERRORS)


@pytest.mark.parametrize("place", TABLE, ids=lambda place: f"{place[0].name}-{'-'.join(place[1:])}")
def test_response_of_an_api_has_a_place_for_its_errors(place: tuple[int, str, str]) -> None:
    """In every version that has the error."""
    key = int(place[0])
    first, last = versions_of(key)
    rng = Random(key)
    for error in TABLE[place].errors:  # type: ignore[index]  # the key of an API is a number
        lowest = max(first, error.version_min)
        highest = last if error.version_max is None else min(last, error.version_max)
        for version in range(lowest, highest + 1):
            layout = layout_of(request_class(key), version)
            bodies = [example(layout, rng.randrange, unknown_tags=False) for _ in range(12)]
            answers = [error_response(key, version, body, error.code) for body in bodies]
            assert any(answer is not None for answer in answers), (error, version)


@pytest.mark.parametrize("version", [12, 17])
def test_errors_of_rows_are_not_those_of_the_whole(version: int) -> None:
    """A session error closes the session; a partition's does not, and a transaction's neither."""
    partition = FetchPartition(partition=0, current_leader_epoch=5)
    topic = FetchTopic(
        topic="__cluster_metadata", topic_id=bytes(15) + b"\x01", partitions=[partition]
    )
    fetch = FetchRequest(topics=[topic])
    for error, own in (
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, True),
        (ErrorCode.BROKER_NOT_AVAILABLE, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
    ):
        answer = error_response(1, version, fetch, error)
        assert answer is not None and (answer.error_code == error) == own
        if not own:
            (row,) = answer.responses[0].partitions
            epoch = 4 if error is ErrorCode.UNKNOWN_LEADER_EPOCH else 5
            assert (row.error_code, row.current_leader.leader_epoch) == (error, epoch)
            assert row.current_leader.leader_id == -1
    assert error_response(1, version, FetchRequest(), ErrorCode.NOT_LEADER_OR_FOLLOWER) is None


def test_unstable_offsets_are_those_of_partitions() -> None:
    """The client reads the error of the group first, and would give up."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    answer = error_response(9, 8, body, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert answer is not None
    (group,) = answer.groups
    assert group.error_code == 0
    assert [row.error_code for row in group.topics[0].partitions] == [88, 88]
