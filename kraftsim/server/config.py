"""The configuration of a node: Kafka's property names, defaults and validation, and a few settings
of kraftsim under `kraftsim.`.

A property file of a real KRaft node can be used unchanged if it uses only implemented features;
anything unusable is one clear error.

Source: kafka.server.KafkaConfig, org.apache.kafka.server.config.*,
org.apache.kafka.raft.QuorumConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from posixpath import normpath
from typing import cast

from kraftsim.metadata.rules_config_definitions import COMPRESSIONS
from kraftsim.metadata.rules_config_releases import all_broker_settings
from kraftsim.partitions.rules_leader import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from kraftsim.producer_state.rules_entries import SEQUENCES_BEHIND_DEFAULT, SEQUENCES_BEHIND_MAX
from kraftsim.server.config_keys import (
    ANNOUNCED_WINDOW,
    AS_RELEASED,
    BLOCK_CHANNELS,
    BY_API_VERSIONS,
    BY_INIT_PRODUCER_ID,
    BY_PRODUCE,
    EAGER,
    ENDING,
    EVERY_SEGMENT,
    FIVE_BATCHES,
    INT64_MAX,
    LAST_ID,
    LATEST_BATCH,
    LATEST_BATCH_46,
    NAME_KEY,
    NEWEST_TWO,
    ON_DEMAND,
    REPEATING,
    REPLAY_YOUNGER,
    RESIZABLE,
    UNKNOWN_PRODUCERS,
    ConfigError,
    addresses,
    assignors,
    boolean,
    choice,
    choices,
    counts,
    decimal,
    endpoints,
    initial_controllers,
    integer,
    long_integer,
    names,
    optional_long,
    optional_text,
    parse_setting,
    protocol_map,
    setting,
    text_value,
    voters,
    zookeeper_addresses,
)
from kraftsim.server.config_roles import BROKER, CONTROLLER, check_roles
from kraftsim.server.config_transactions import TransactionConfig
from kraftsim.server.config_values import (
    check_values,
    describe_unknown_keys,
    with_fallbacks,
    with_release_defaults,
)
from kraftsim.server.endpoints import (
    InitialController,
    ListenerEndpoint,
    VoterAddress,
    ZookeeperAddresses,
    parse_zookeeper,
)
from kraftsim.server.inbox import LARGE_FRAME_BYTES
from kraftsim.server.security.listener_settings import (
    check_advertised,
    check_listeners,
    check_security,
    is_listener_key,
)
from kraftsim.zookeeper.mode_settings import with_node_id

DEFAULT_CLUSTER_ID = "a3JhZnRzaW0tY2x1c3RlcQ"
PLAINTEXT = "PLAINTEXT"
STORE_PREFIX, REMOTE_METADATA_PREFIX = "rsm.config.", "rlmm.config."
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZOOKEEPER_AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Authorizers of brokers in ZooKeeper mode: since 2.4, and before."""
CONFIGS_KEPT_MAX = 64
"""The number of parsed configurations that are kept: those of a few clusters."""
_DEFAULT_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeConfig(TransactionConfig):
    """All settings of a node, validated.

    Field names are Kafka's with '_' for '.'; kraftsim's own settings omit the prefix `kraftsim.`.

    Units are in the names. Use `NodeConfig.parse`; an instance constructed directly is not
    validated.
    """

    # identity and addresses
    process_roles: tuple[str, ...] = setting("process.roles", names)
    node_id: int = setting("node.id", integer(at_least=0), None)
    listeners: tuple[ListenerEndpoint, ...] = setting("listeners", endpoints, "PLAINTEXT://:9092")
    advertised_listeners: tuple[ListenerEndpoint, ...] = setting("advertised.listeners", endpoints)
    listener_security_protocol_map: Mapping[str, str] = setting(
        "listener.security.protocol.map", protocol_map, _DEFAULT_MAP
    )
    controller_listener_names: tuple[str, ...] = setting("controller.listener.names", names)
    inter_broker_listener_name: str = setting("inter.broker.listener.name", str.upper)
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol", str.upper, "PLAINTEXT"
    )
    controller_quorum_voters: tuple[VoterAddress, ...] = setting("controller.quorum.voters", voters)
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...] = setting(
        "controller.quorum.bootstrap.servers", addresses
    )
    broker_rack: str | None = setting("broker.rack", optional_text)
    log_dirs: tuple[str, ...] = setting("log.dirs", names, "/tmp/kraftsim-logs")
    metadata_log_dir: str | None = setting("metadata.log.dir", optional_text)

    # ZooKeeper, for brokers without process.roles, and for controllers in a migration
    zookeeper_connect: str = setting("zookeeper.connect", zookeeper_addresses)
    zookeeper_session_timeout_ms: int = setting("zookeeper.session.timeout.ms", integer(), "18000")
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms", optional_long(at_least=0)
    )
    zookeeper_set_acl: bool = setting("zookeeper.set.acl", boolean, "false")
    zookeeper_metadata_migration_enable: bool = setting(
        "zookeeper.metadata.migration.enable", boolean, "false"
    )
    broker_id: int | None = setting("broker.id", optional_long(at_least=-1))
    inter_broker_protocol_version: str = setting("inter.broker.protocol.version", text_value)
    control_plane_listener_name: str = setting("control.plane.listener.name", str.upper)

    # connections
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", integer(at_least=1), "104857600"
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", integer(at_least=1), "50"
    )
    connections_max_idle_ms: int = setting("connections.max.idle.ms", long_integer(), "600000")
    max_connections: int = setting("max.connections", integer(at_least=0), "2147483647")
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", integer(at_least=0), "2147483647"
    )
    max_connections_per_ip_overrides: Mapping[str, int] = setting(
        "max.connections.per.ip.overrides", counts
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate", integer(at_least=0), "2147483647"
    )
    request_timeout_ms: int = setting("request.timeout.ms", integer(at_least=0), "30000")

    # security; settings with a listener prefix are in security/listener_settings.py
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms", integer(at_least=0), "100"
    )
    connections_max_reauth_ms: int = setting("connections.max.reauth.ms", long_integer(), "0")
    sasl_enabled_mechanisms: tuple[str, ...] = setting("sasl.enabled.mechanisms", names, "GSSAPI")
    sasl_mechanism_inter_broker_protocol: str = setting(
        "sasl.mechanism.inter.broker.protocol", text_value, "GSSAPI"
    )
    sasl_mechanism_controller_protocol: str = setting(
        "sasl.mechanism.controller.protocol", text_value, "GSSAPI"
    )
    sasl_server_max_receive_size: int = setting("sasl.server.max.receive.size", integer(), "524288")
    authorizer_class_name: str = setting(
        "authorizer.class.name", choice("", STANDARD_AUTHORIZER, *ZOOKEEPER_AUTHORIZERS)
    )
    super_users: str = setting("super.users", text_value)
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found", boolean, "false"
    )

    # topics and partition logs
    num_partitions: int = setting("num.partitions", integer(at_least=1), "1")
    default_replication_factor: int = setting(
        "default.replication.factor", integer(at_least=1, at_most=32767), "1"
    )
    delete_topic_enable: bool = setting("delete.topic.enable", boolean, "true")
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", boolean, "false"
    )
    unclean_leader_election_interval_ms: int = setting(
        "unclean.leader.election.interval.ms", long_integer(at_least=1), "300000"
    )
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable", boolean, "true")
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", long_integer(at_least=1), "300"
    )
    auto_create_topics_enable: bool = setting("auto.create.topics.enable", boolean, "true")
    min_insync_replicas: int = setting("min.insync.replicas", integer(at_least=1), "1")
    message_max_bytes: int = setting("message.max.bytes", integer(at_least=0), "1048588")
    log_segment_bytes: int = setting("log.segment.bytes", integer(at_least=14), "1073741824")
    log_index_interval_bytes: int = setting("log.index.interval.bytes", integer(at_least=0), "4096")
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes", integer(at_least=4), "10485760"
    )
    log_roll_hours: int = setting("log.roll.hours", integer(at_least=1), "168")
    log_roll_ms: int | None = setting("log.roll.ms", optional_long(at_least=1))
    log_retention_bytes: int = setting("log.retention.bytes", long_integer(), "-1")
    log_retention_hours: int = setting("log.retention.hours", integer(), "168")
    log_retention_minutes: int | None = setting("log.retention.minutes", optional_long(at_least=-1))
    log_retention_ms: int | None = setting("log.retention.ms", optional_long(at_least=-1))
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", long_integer(at_least=1), "300000"
    )
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms", long_integer(at_least=0), "30000"
    )
    log_dir_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms", long_integer(at_least=1), "30000"
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy", choices("compact", "delete"), "delete"
    )
    log_cleaner_enable: bool = setting("log.cleaner.enable", boolean, "true")
    log_cleaner_threads: int = setting("log.cleaner.threads", integer(at_least=0), "1")
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", long_integer(at_least=0), "15000"
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", long_integer(), "134217728"
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", decimal(), "0.9"
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", decimal(), "1.7976931348623157E308"
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio", decimal(at_most=1), "0.5"
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms", long_integer(at_least=0), "0"
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms", long_integer(at_least=1), str(INT64_MAX)
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms", long_integer(at_least=0), "86400000"
    )
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages", long_integer(at_least=1), str(INT64_MAX)
    )
    log_flush_interval_ms: int | None = setting("log.flush.interval.ms", optional_long(at_least=0))
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", integer(at_least=0), "60000"
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type", choice("CreateTime", "LogAppendTime"), "CreateTime"
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", long_integer(at_least=0), str(INT64_MAX)
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms", long_integer(at_least=0), str(INT64_MAX)
    )
    log_message_downconversion_enable: bool = setting(
        "log.message.downconversion.enable", boolean, "true"
    )
    compression_type: str = setting("compression.type", choice(*COMPRESSIONS), "producer")
    fetch_max_bytes: int = setting("fetch.max.bytes", integer(at_least=1024), "57671680")
    replica_selector_class: str = setting(
        "replica.selector.class", choice(LEADER_SELECTOR, RACK_AWARE_SELECTOR), LEADER_SELECTOR
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num", integer(at_least=1), "11"
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", integer(at_least=1), "1"
    )
    quota_window_num: int = setting("quota.window.num", integer(at_least=1), "11")
    quota_window_size_seconds: int = setting("quota.window.size.seconds", integer(at_least=1), "1")
    replication_quota_window_num: int = setting(
        "replication.quota.window.num", integer(at_least=1), "11"
    )
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds", integer(at_least=1), "1"
    )
    alter_log_dirs_replication_quota_window_num: int = setting(
        "alter.log.dirs.replication.quota.window.num", integer(at_least=1), "11"
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        "alter.log.dirs.replication.quota.window.size.seconds", integer(at_least=1), "1"
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit", integer(at_least=1), "2000"
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", integer(at_least=0), "1000"
    )

    num_replica_fetchers: int = setting("num.replica.fetchers", integer(at_least=1), "1")
    replica_lag_time_max_ms: int = setting("replica.lag.time.max.ms", long_integer(), "30000")
    replica_fetch_wait_max_ms: int = setting("replica.fetch.wait.max.ms", integer(), "500")
    replica_fetch_min_bytes: int = setting("replica.fetch.min.bytes", integer(), "1")
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", integer(at_least=0), "1048576"
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", integer(at_least=0), "10485760"
    )
    replica_fetch_backoff_ms: int = setting("replica.fetch.backoff.ms", integer(at_least=0), "1000")
    replica_socket_timeout_ms: int = setting("replica.socket.timeout.ms", integer(), "30000")
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", long_integer(), "5000"
    )

    # producer ids and transactions
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", integer(at_least=1), "86400000"
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", integer(at_least=1), "600000"
    )

    max_in_flight_sequence_number_per_connection: int = setting(
        "max.in.flight.sequence.number.per.connection",
        integer(at_least=1, at_most=SEQUENCES_BEHIND_MAX),
        str(SEQUENCES_BEHIND_DEFAULT),
    )

    # tiered storage; properties with the prefix rsm.config. or rlmm.config. go to the remote store
    # or configure the metadata topic
    remote_log_storage_system_enable: bool = setting(
        "remote.log.storage.system.enable", boolean, "false"
    )
    remote_log_storage_manager_class_name: str | None = setting(
        "remote.log.storage.manager.class.name", optional_text
    )
    remote_log_metadata_manager_listener_name: str | None = setting(
        "remote.log.metadata.manager.listener.name", optional_text
    )
    remote_log_metadata_custom_metadata_max_bytes: int = setting(
        "remote.log.metadata.custom.metadata.max.bytes", integer(at_least=0), "128"
    )
    remote_log_manager_task_interval_ms: int = setting(
        "remote.log.manager.task.interval.ms", long_integer(at_least=1), "30000"
    )
    remote_log_manager_thread_pool_size: int = setting(
        "remote.log.manager.thread.pool.size", integer(at_least=1), "10"
    )
    remote_log_reader_max_pending_tasks: int = setting(
        "remote.log.reader.max.pending.tasks", integer(at_least=1), "100"
    )
    remote_fetch_max_wait_ms: int = setting("remote.fetch.max.wait.ms", integer(at_least=1), "500")
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        "remote.log.manager.copy.max.bytes.per.second", long_integer(at_least=1), str(INT64_MAX)
    )
    remote_log_manager_copy_quota_window_num: int = setting(
        "remote.log.manager.copy.quota.window.num", integer(at_least=1), "11"
    )
    remote_log_manager_copy_quota_window_size_seconds: int = setting(
        "remote.log.manager.copy.quota.window.size.seconds", integer(at_least=1), "1"
    )
    remote_log_manager_fetch_max_bytes_per_second: int = setting(
        "remote.log.manager.fetch.max.bytes.per.second", long_integer(at_least=1), str(INT64_MAX)
    )
    remote_log_manager_fetch_quota_window_num: int = setting(
        "remote.log.manager.fetch.quota.window.num", integer(at_least=1), "11"
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = setting(
        "remote.log.manager.fetch.quota.window.size.seconds", integer(at_least=1), "1"
    )
    tiering_remedy: str = setting("kraftsim.tiering.remedy", text_value)
    producer_snapshots: str = setting(
        "kraftsim.producer.snapshots",
        choice(AS_RELEASED, EVERY_SEGMENT, NEWEST_TWO, REPLAY_YOUNGER),
        AS_RELEASED,
    )

    # consumer groups
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", integer(), "3000"
    )
    group_min_session_timeout_ms: int = setting("group.min.session.timeout.ms", integer(), "6000")
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", integer(), "1800000"
    )
    group_max_size: int = setting("group.max.size", integer(at_least=1), "2147483647")
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols", names
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms", integer(at_least=1), "45000"
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms", integer(at_least=1), "5000"
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size", integer(at_least=1), "2147483647"
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors", assignors, "uniform,range"
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        choice("", "bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_assignment_interval_ms: int | None = setting(
        "group.consumer.assignment.interval.ms", optional_long(at_least=0)
    )
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes", integer(), "4096")
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", integer(at_least=1), "10080"
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", long_integer(at_least=1), "600000"
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size", integer(at_least=1), "5242880"
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms", integer(at_least=1), "5000"
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", integer(at_least=1), "50"
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", integer(at_least=1, at_most=32767), "3"
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", integer(at_least=1), "104857600"
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec", integer(at_least=0, at_most=4), "0"
    )

    # brokers and controllers
    broker_heartbeat_interval_ms: int = setting("broker.heartbeat.interval.ms", integer(), "2000")
    broker_session_timeout_ms: int = setting("broker.session.timeout.ms", integer(), "9000")
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms", integer(), "60000"
    )
    controlled_shutdown_enable: bool = setting("controlled.shutdown.enable", boolean, "true")
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries", integer(), "3"
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms", long_integer(), "5000"
    )
    controller_socket_timeout_ms: int = setting("controller.socket.timeout.ms", integer(), "30000")
    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms", integer(at_least=1), "1000"
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        "controller.quorum.fetch.timeout.ms", integer(at_least=1), "2000"
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        "controller.quorum.election.backoff.max.ms", integer(at_least=0), "1000"
    )
    controller_quorum_request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms", integer(), "2000"
    )
    controller_quorum_retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms", integer(), "20"
    )
    controller_quorum_fetch_max_bytes: int = setting(
        "controller.quorum.fetch.max.bytes", integer(at_least=1), "8388608"
    )
    controller_quorum_fetch_snapshot_max_bytes: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes", integer(at_least=1), "8388608"
    )
    metadata_max_idle_interval_ms: int = setting(
        "metadata.max.idle.interval.ms", integer(at_least=0), "500"
    )
    metadata_log_segment_bytes: int = setting(
        "metadata.log.segment.bytes", integer(at_least=12), "1073741824"
    )
    metadata_log_segment_ms: int = setting("metadata.log.segment.ms", long_integer(), "604800000")
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots", long_integer(at_least=1), "20971520"
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms", long_integer(at_least=0), "3600000"
    )
    metadata_max_retention_bytes: int = setting(
        "metadata.max.retention.bytes", long_integer(), "104857600"
    )
    metadata_max_retention_ms: int = setting(
        "metadata.max.retention.ms", long_integer(), "604800000"
    )

    # ours
    release: str = setting("kraftsim.release", text_value, "3.9")
    upgrade_path: str = setting("kraftsim.upgrade.path", text_value, "")
    window_carrier: str = setting(
        "kraftsim.window.carrier",
        choice(BY_PRODUCE, BY_API_VERSIONS, BY_INIT_PRODUCER_ID),
        BY_PRODUCE,
    )
    producer_state: str = setting(
        "kraftsim.producer.state",
        choice(FIVE_BATCHES, LATEST_BATCH, LATEST_BATCH_46, ANNOUNCED_WINDOW),
        FIVE_BATCHES,
    )
    offset_fencing: str = setting("kraftsim.offset.fencing", text_value)
    unknown_producer: str = setting(
        "kraftsim.unknown.producer", choice(*UNKNOWN_PRODUCERS), UNKNOWN_PRODUCERS[0]
    )
    producer_ids: str = setting(
        "kraftsim.producer.ids", choice(AS_RELEASED, ENDING, ON_DEMAND, EAGER), AS_RELEASED
    )
    producer_id_blocks: str = setting(
        "kraftsim.producer.id.blocks", choice(*BLOCK_CHANNELS), BLOCK_CHANNELS[0]
    )
    producer_id_control: str = setting(
        "kraftsim.producer.id.control",
        choice(AS_RELEASED, RESIZABLE, REPEATING, LAST_ID),
        AS_RELEASED,
    )
    producer_id_blocks_per_second: float = setting(
        "kraftsim.producer.id.blocks.per.second", decimal(), "0"
    )
    producer_id_block_size: int = setting(
        "kraftsim.producer.id.block.size", integer(at_least=1), "1000"
    )
    cluster_id: str = setting("kraftsim.cluster.id", text_value, DEFAULT_CLUSTER_ID)
    run: str = setting("kraftsim.run", text_value, "run")
    node_name: str = setting("kraftsim.node.name", text_value)
    run_started_ns: int | None = setting("kraftsim.run.started.ns", optional_long(at_least=0))
    events_dir: str | None = setting("kraftsim.events.dir", optional_text)
    seed: int = setting("kraftsim.seed", long_integer(), "0")
    bugs: tuple[str, ...] = setting("kraftsim.bugs", names)
    initial_controllers: tuple[InitialController, ...] = setting(
        "kraftsim.initial.controllers", initial_controllers
    )
    frame_events: bool = setting("kraftsim.frame.events", boolean, "false")
    small_segments: bool = setting("kraftsim.small.segments", boolean, "false")
    large_frame_bytes: int = setting(
        "kraftsim.large.frame.bytes", integer(at_least=1), str(LARGE_FRAME_BYTES)
    )
    registration_wait_ms: int = setting("kraftsim.registration.wait.ms", integer(at_least=0), "0")
    outgoing_host: str | None = setting("kraftsim.outgoing.host", optional_text)
    client_telemetry: bool = setting("kraftsim.client.telemetry", boolean, "false")
    telemetry_max_bytes: int = setting("telemetry.max.bytes", integer(at_least=1), "1048576")

    given: Mapping[str, str] = field(default_factory=dict)
    """The given properties, without defaults."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "NodeConfig":
        """Validate properties as Kafka would. Raises ConfigError: one line, naming the key."""
        return _parsed(tuple(properties.items()))

    @property
    def is_controller(self) -> bool:
        """Whether this node is a controller."""
        return CONTROLLER in self.process_roles

    @property
    def is_broker(self) -> bool:
        """Whether this node is a broker."""
        return BROKER in self.process_roles or self.is_zookeeper_mode

    @property
    def is_combined(self) -> bool:
        """Whether this process is a broker and a controller."""
        return self.is_controller and self.is_broker

    @property
    def role(self) -> str:
        """The roles of this node: `broker`, `controller`, or `broker,controller`."""
        if self.is_combined:
            return f"{BROKER},{CONTROLLER}"
        return CONTROLLER if self.is_controller else BROKER

    @property
    def broker_listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The listeners of the broker: all but those of controllers."""
        return self._outside_controllers(self.listeners)

    @property
    def advertised_broker_listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The endpoints in a broker's registration.

        Source: kafka.server.KafkaConfig.effectiveAdvertisedBrokerListeners.
        """
        return self._outside_controllers(self.advertised_listeners)

    @property
    def advertisable_listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The endpoints that are advertised if the properties do not say which."""
        return tuple(
            ListenerEndpoint(each.listener, each.bind_host, each.port) for each in self.listeners
        )

    @property
    def controller_listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The listeners of the controller."""
        names = self.controller_listener_names
        return tuple(each for each in self.listeners if each.listener in names)

    def _outside_controllers(
        self, endpoints: tuple[ListenerEndpoint, ...]
    ) -> tuple[ListenerEndpoint, ...]:
        names = self.controller_listener_names
        return tuple(each for each in endpoints if each.listener not in names)

    @property
    def is_zookeeper_mode(self) -> bool:
        """Whether this is a broker in ZooKeeper mode."""
        return bool(self.zookeeper_connect) and not self.process_roles

    @property
    def zookeeper(self) -> ZookeeperAddresses:
        """The addresses of ZooKeeper; empty if not configured."""
        return parse_zookeeper(self.zookeeper_connect)

    @property
    def is_migrating(self) -> bool:
        """Whether this is a ZooKeeper-mode broker in migration to KRaft (KIP-866)."""
        return self.is_zookeeper_mode and self.zookeeper_metadata_migration_enable

    @property
    def first_asked(self) -> tuple[VoterAddress, ...]:
        """The initial quorum addresses: the voters, or the bootstrap servers, whose ids are unknown
        (negative ids are used).
        """
        return self.controller_quorum_voters or tuple(
            VoterAddress(-1 - index, host, port)
            for index, (host, port) in enumerate(self.controller_quorum_bootstrap_servers)
        )

    @property
    def log_dir(self) -> str:
        """The first data directory."""
        return self.log_dirs[0]

    @property
    def has_metadata_directory(self) -> bool:
        """Whether the metadata log has its own directory."""
        return self.metadata_log_dir is not None and normpath(self.metadata_log_dir) != normpath(
            self.log_dir
        )

    @property
    def metadata_directory(self) -> str:
        """The directory of the metadata log and quorum state."""
        return self.log_dir if self.metadata_log_dir is None else self.metadata_log_dir

    @property
    def metadata_key(self) -> str:
        """The key of that directory."""
        return "metadata.log.dir" if self.has_metadata_directory else "log.dirs"

    @property
    def segment_ms(self) -> int:
        """The maximum age of an active segment."""
        return self.log_roll_ms if self.log_roll_ms is not None else self.log_roll_hours * 3_600_000

    def advertised_at(self, listener: str) -> ListenerEndpoint:
        """Return the advertised endpoint of a listener. Raises KeyError."""
        for endpoint in self.advertised_listeners:
            if endpoint.listener == listener:
                return endpoint
        raise KeyError(listener)


def is_plugin_key(name: str) -> bool:
    """Return whether a key is passed to the remote store or its metadata manager."""
    return name.startswith((STORE_PREFIX, REMOTE_METADATA_PREFIX))


def unknown_keys(properties: Mapping[str, str]) -> list[str]:
    """Return the keys that are unknown to all releases of Apache Kafka and to kraftsim, in the
    order of the properties.
    """
    known = known_keys()
    return [
        name
        for name in properties
        if name not in known and not (is_listener_key(name) or is_plugin_key(name))
    ]


def known_keys() -> frozenset[str]:
    """Return the keys that some release of Apache Kafka or kraftsim knows, without those of
    listeners and of the remote store.
    """
    return declared_keys() | KEYS_WITHOUT_EFFECT


def declared_keys() -> frozenset[str]:
    """Return the keys of all settings with effect."""
    return frozenset(
        str(each.metadata[NAME_KEY]) for each in fields(NodeConfig) if NAME_KEY in each.metadata
    )


@lru_cache(maxsize=CONFIGS_KEPT_MAX)
def _parsed(given: tuple[tuple[str, str], ...]) -> NodeConfig:
    """Kept, because a node is restarted with the same properties again and again in a simulation;
    an instance is never changed.
    """
    properties = dict(given)
    declared = {
        str(each.metadata[NAME_KEY]): each
        for each in fields(NodeConfig)
        if NAME_KEY in each.metadata
    }
    unknown = unknown_keys(properties)
    if unknown:
        raise ConfigError(describe_unknown_keys(unknown, known_keys()))
    merged = with_release_defaults(with_fallbacks(with_node_id(properties)))
    values = {each.name: parse_setting(each, merged.get(name)) for name, each in declared.items()}
    # arg-type: parse_setting returns the type of each field
    config = NodeConfig(**cast(dict[str, str], values))  # type: ignore[arg-type]
    return _with_derived(config, properties)


def _with_derived(config: NodeConfig, properties: Mapping[str, str]) -> NodeConfig:
    """Set the values that Kafka derives from other settings, then validate combinations."""
    protocols = dict(config.listener_security_protocol_map)
    controller_listeners = tuple(name.upper() for name in config.controller_listener_names)
    if "listener.security.protocol.map" not in properties:
        for name in controller_listeners:
            protocols.setdefault(name, PLAINTEXT)
    config = replace(
        config,
        listener_security_protocol_map=protocols,
        controller_listener_names=controller_listeners,
        advertised_listeners=config.advertised_listeners or config.advertisable_listeners,
        inter_broker_listener_name=config.inter_broker_listener_name
        or config.security_inter_broker_protocol,
        node_name=config.node_name
        or f"{BROKER if config.is_combined else config.role}-{config.node_id}",
        given=dict(properties),
    )
    check_roles(config)
    check_listeners(config)
    check_advertised(config, given="advertised.listeners" in properties)
    check_security(config)
    check_values(config.release, config.given, small_segments=config.small_segments)
    if not config.log_dirs or len(set(map(normpath, config.log_dirs))) < len(config.log_dirs):
        raise ConfigError(
            f"log.dirs must name directories, each of them once, got {','.join(config.log_dirs)!r}"
        )
    return config


KEYS_WITHOUT_EFFECT = all_broker_settings()
"""Kafka settings that are accepted, so that real property files can be used, but have no effect:
those of all releases (kraftsim/metadata/config_facts), without what callers remove, which is
declared above or of a listener. reference/settings.md lists them.
"""
