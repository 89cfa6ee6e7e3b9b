"""Control requests of ZooKeeper mode with any names, ids and numbers.

The image of a broker stays consistent, and the state of a controller can be built from it.
"""

from hypothesis import given
from hypothesis import strategies as st

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_image import MetadataImage, snapshot_records
from kraftsim.metadata.rules_partitions import TopicDefaults
from kraftsim.zookeeper.rules_received_metadata import FULL, LocalPartition, ReceivedMetadata
from protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.k06_update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.uuids import ZERO_UUID

OWN = 1
NAMES = st.sampled_from(("a", "b", "../c"))
IDS = st.sampled_from((ZERO_UUID, b"\x01" * 16, b"\x02" * 16))
NUMBERS = st.sampled_from((0, 1, 2, -1, -2, LEADER_DURING_DELETE, 2**31 - 1, -(2**31)))
NODES = st.lists(st.sampled_from((OWN, 2, 3, -1)), max_size=3)

UPDATED = st.builds(
    UpdateMetadataPartitionState,
    partition_index=NUMBERS,
    leader=NUMBERS,
    leader_epoch=NUMBERS,
    isr=NODES,
    zk_version=NUMBERS,
    replicas=NODES,
)
LED = st.builds(
    LeaderAndIsrPartitionState,
    partition_index=NUMBERS,
    leader=NUMBERS,
    leader_epoch=NUMBERS,
    isr=NODES,
    partition_epoch=NUMBERS,
    replicas=NODES,
)
UPDATED_TOPICS = st.builds(
    UpdateMetadataTopicState,
    topic_name=NAMES,
    topic_id=IDS,
    partition_states=st.lists(UPDATED, max_size=2),
)
LED_TOPICS = st.builds(
    LeaderAndIsrTopicState,
    topic_name=NAMES,
    topic_id=IDS,
    partition_states=st.lists(LED, max_size=2),
)
UPDATES = st.builds(
    UpdateMetadataRequest,
    is_kraft_controller=st.booleans(),
    type=st.sampled_from((0, 1, FULL)),
    live_brokers=st.lists(
        st.builds(UpdateMetadataBroker, id=st.sampled_from((OWN, 2, -1))), max_size=2
    ),
    topic_states=st.lists(UPDATED_TOPICS, max_size=3),
)
LEADERS = st.builds(
    LeaderAndIsrRequest,
    is_kraft_controller=st.booleans(),
    type=st.sampled_from((0, 1, FULL)),
    topic_states=st.lists(LED_TOPICS, max_size=3),
)


@given(st.lists(UPDATES | LEADERS, max_size=6))
def test_no_control_request_gives_two_topics_one_id_or_one_topic_two(
    requests: list[UpdateMetadataRequest | LeaderAndIsrRequest],
) -> None:
    image, received = (
        MetadataImage(),
        ReceivedMetadata(OWN, bytes(16), deletes_what_is_missing=True),
    )

    epochs: dict[tuple[str, int], int] = {}

    def held(name: str, number: int) -> LocalPartition | None:
        topic = image.topic(name)
        if topic is None or (name, number) not in epochs:
            return None
        return LocalPartition(leader_epoch=epochs[name, number], topic_id=topic.topic_id)

    for request in requests:
        answer = (
            received.update(request, image)
            if isinstance(request, UpdateMetadataRequest)
            else received.apply_leader_and_isr(request, image, held)
        )
        assert not isinstance(answer, Refusal), "the epoch of the controller never changes"
        for name, topic_id in answer.adopted.items():
            if image.topic(name) is not None:
                image.name_topic(name, topic_id)
        for record in answer.records:
            image.load(record)
        names = [topic.name for topic in image.topics()]
        assert len(names) == len(set(names))
        for name in names:
            topic = image.topic(name)
            assert (
                topic is not None
                and topic.name == name
                and image.topic_by_id(topic.topic_id) is topic
            )
        for name, number in answer.roles:
            topic = image.topic(name)
            assert topic is not None
            former, epoch = epochs.get((name, number), -1), topic.partitions[number].leader_epoch
            assert epoch >= max(0, former), "the epoch of a replica never goes back"
            epochs[name, number] = epoch
        for name, number in tuple(epochs):
            topic = image.topic(name)
            if topic is None or number not in topic.partitions:
                del epochs[name, number]
        state = ControllerState(
            cluster_id="cluster",
            session_timeout_ms=9000,
            metadata_version=21,
            topic_defaults=TopicDefaults(),
        )
        for offset, record in enumerate(snapshot_records(image)):
            state.replay(record, offset)
