"""Wireshark's own Kafka dissector reads a conversation with our broker: a second opinion on every
frame.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.conformance.peer import Peer, api_key_of, framed, request_bytes
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import (
    ACKS_ALL,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.schema import Message
from tests.cluster.broker_client import batch_of, broker_client
from tests.cluster.running import address_of, create_topic
from tests.inspect.conversations import identities, read
from tests.inspect.packets import Conversation, pcap

pytestmark = pytest.mark.interop
RECORDS = 300
ADVERTISES_MORE = re.compile(r"Unsupported \w+ version\. Supports|Unknown \d+ API key")
"""In the ApiVersions response: kraftsim serves versions and APIs that the dissector does not know
yet.
"""
NAMES = {ApiKey.LIST_OFFSETS: "Offsets"}


def questions(topic: str) -> list[tuple[Message, int]]:
    """Every API of ours that the dissector knows, in the newest version that it knows
    (packet-kafka.c of Wireshark 4.0).
    """
    produced = TopicProduceData(
        name=topic,
        partition_data=[PartitionProduceData(index=0, records=batch_of([b"value"] * RECORDS))],
    )
    fetched = FetchTopic(
        topic=topic,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
    )
    listed = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    return [
        (ApiVersionsRequest(client_software_name="tshark", client_software_version="1"), 3),
        (MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)],
                timeout_ms=1000,
            ),
            5,
        ),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 3),
        (ProduceRequest(acks=ACKS_ALL, timeout_ms=1000, topic_data=[produced]), 8),
        (ListOffsetsRequest(replica_id=-1, topics=[listed]), 5),
        (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[fetched]), 11),
    ]


def converse(address: str, asked: list[tuple[Message, int]]) -> list[tuple[bool, bytes]]:
    """Send requests one at a time; return the traffic as (is a response, bytes with their size)."""
    carried = []
    with Peer.at(address) as peer:
        for number, (body, version) in enumerate(asked):
            sent = request_bytes(body, version, number)
            peer.send_bytes(sent)
            carried += [(False, sent), (True, framed(peer.receive_frame()))]
    return carried


def capture(carried: list[tuple[bool, bytes]]) -> bytes:
    """Return a conversation as a capture file."""
    conversation = Conversation()
    for is_answer, data in carried:
        conversation.send(data, from_client=not is_answer)
    return pcap(conversation.packets)


def test_tshark_dissects_every_frame_without_errors(
    cluster: ProcessCluster, topic: str, tmp_path: Path
) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("no tshark on the search path")
    create_topic(cluster, topic, 1)
    leader = next(
        name
        for name in cluster.spec.broker_names
        if (cluster.directory.data(name) / f"{topic}-0").exists()
    )
    with broker_client(address_of(cluster, leader)) as broker:
        assert broker.produce(topic, batch_of([b"first"])).error_code == 0
    asked = questions(topic)
    file = tmp_path / "conversation.pcap"
    file.write_bytes(capture(converse(address_of(cluster, leader), asked)))
    words = ["tshark", "-r", str(file), "-d", "tcp.port==9092,kafka", "-V"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    complaints = [
        line.strip() for line in shown.splitlines() if "Malformed" in line or "Expert Info" in line
    ]
    assert [line for line in complaints if not ADVERTISES_MORE.search(line)] == []
    frames = re.findall(r"^Kafka \((\w+) v(\d+) (Request|Response)\)$", shown, re.MULTILINE)
    names = [
        NAMES.get(ApiKey(api_key_of(body)), type(body).__name__.removesuffix("Request"))
        for body, _ in asked
    ]
    versions = [str(version) for _, version in asked]
    assert frames == [
        (name, version, way)
        for name, version in zip(names, versions, strict=True)
        for way in ("Request", "Response")
    ]
    assert (shown.count('Value: "value"'), shown.count('Value: "first"')) == (2 * RECORDS, 1), (
        "written and read"
    )
    assert shown.count("Error: No Error (0)") >= len(asked) - 1
    ours, _, _ = read(file.read_bytes())
    keys = [(api_key_of(body), version, number) for number, (body, version) in enumerate(asked)]
    assert identities(ours) == [(*key, way) for key in keys for way in ("request", "response")], (
        "and so does kraftsim decode"
    )
    assert not [each for each in ours if each.frame.tree.troubles]
