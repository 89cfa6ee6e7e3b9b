"""Cluster metadata: brokers, topics, partitions, configurations, features, ACLs and quotas, decided
by the active controller and known to every broker.

The metadata log (`kraftsim/raft`) has one record per change (KIP-631). The active controller turns
a request into records; every other controller and every broker replays them. In Kafka:
org.apache.kafka.controller.QuorumController with its control managers,
org.apache.kafka.image.MetadataImage, kafka.server.metadata.BrokerMetadataPublisher. Many KIPs meet
here: KIP-500 and KIP-631 as a whole, KIP-455 (reassignments), KIP-497 (AlterPartition), KIP-584 and
KIP-778 (features), KIP-858 (directories), KIP-866 (migration), KIP-966 (eligible leader replicas).

Two forms of the state: a controller has `ControllerState` (`rules_controller_state`), whose tables
can be reverted, because it replays its decisions before they are committed; a broker has
`MetadataImage` (`rules_image`), which receives committed records only. Both use the same types of
registrations (`rules_registrations`) and the same key-value registries.

Invariants. Deciding and changing are separate: `decide_*` reads and returns records, only `replay`
changes, and it cannot refuse. Nothing is visible outside before it is committed: not in a response,
not in an event. After a loss of leadership the state is exactly that of the committed log. A
partition has one leader per leader epoch; a leader comes from the ISR, unless the topic allows
unclean elections. A request of a former incarnation of a broker, or with a former partition epoch,
changes nothing.

The path of a CreateTopics:

    server/forwarding             a broker wraps the request in an Envelope to the controller
    deciding_controller           refuses it with NOT_CONTROLLER, unless this controller is active
    controller_handlers/topics    applies the mutation quota, and builds the response rows
    deciding_controller           a large request is decided in steps between other work; if the
                                  state changes meanwhile, it is decided again in one turn
    rules_topics                  `create_topics_steps` validates, places replicas
                                  (`rules_topic_table`), returns a `Decision`: records and results
    metadata_writer               `commit` appends the records as one batch, replays them, and
                                  responds when they are committed, or with NOT_CONTROLLER when
                                  leadership is lost first
    metadata_publisher            on each broker: replays the committed batch into the image, and
                                  publishes image and changes
    server/broker, partitions     open the new logs, become leader or follower

A change of a partition, whatever its cause, is built by `changed_partition` in
`rules_partition_changes`; there are the rules of leader, ISR, ELR and reassignment in one place.

What is hard. Responses depend on uncommitted state: a request without records of its own is
answered only when the state that it has read is committed (`MetadataWriter.commit`). A decision
over thousands of topics must not hold the event loop, and must be atomic. A snapshot has no
history: deletions show only by comparing images (`difference`). The session of a broker is not
replicated, so a new active controller gives all brokers a fresh one (`BrokerSessions`). A
configuration has layers, synonyms and per-release definitions (`rules_config_*`, generated rows in
`config_facts`).

Releases. A metadata.version enables record types and fields: `MetadataLevel` in `rules_versions`
names each of them, and other rules ask it instead of comparing numbers. Release traits select the
rest (`ReplicationBehavior`, `MigrationBehavior`): atomic UpdateFeatures since 4.0, a reassignment
that completes with its adding replicas since 4.3.

Read `core/decision` and `core/timeline`, then `rules_registrations`, `rules_topic_table`,
`rules_partition_changes`, `rules_partitions`, `rules_controller_state`, `metadata_writer`; for
brokers `rules_image` and `metadata_publisher`.
"""
