"""ZooKeeper: the server, and brokers and controllers that keep their metadata in it, as Kafka did
before KRaft.

Three subjects share the folder. The server is a standalone ZooKeeper: a tree of znodes with
sessions, watches and ACLs, in ZooKeeper's protocol and file formats (org.apache.zookeeper.server).
A broker in ZooKeeper mode registers as an ephemeral znode and gets its metadata from the controller
by UpdateMetadata, LeaderAndIsr and StopReplica (kafka.server.KafkaServer, 2.3 to 3.9). The
controller is the broker that created /controller (kafka.controller.KafkaController).

The idea that keeps it small: whatever a broker reads or receives becomes the metadata records of
KRaft and is applied to the same image, and the controller decides with the rules of KRaft
(`kraftsim/metadata`), except for partition states and new topics (`rules_partitions`). Only the
source of metadata and the way a decision is written differ.

Invariants. No client reads what a power loss could remove: the server flushes its log before it
sends responses and notifications. One controller acts: each write checks the version of
/controller_epoch in the same multi, and brokers refuse requests of an older controller epoch. A
request to a former incarnation of a broker is refused by its broker epoch, the czxid of its znode.
A decision is complete when ZooKeeper has acknowledged it; if ZooKeeper refuses it, it is undone.

The path of a write on the server:

    connection     splits frames (a first frame of four letters is an operator's command)
    server         queues the frames of all clients in order of arrival
    rules_keeper   `ServerState` evaluates each: `Draft` (`rules_server`) validates, `ZnodeTree`
                   (`rules_tree`) applies, `Watches` finds the clients to notify
    files          all changes that came during the last flush are written and flushed together
    server         then the responses and notifications leave, in order

The path of a controller's decision: `controller_requests` routes to KRaft's handlers, or to
`topic_requests` and `cluster_requests`; `metadata_writer.ZnodeWriter` replays the records, turns
them into znode writes (`rules_znode_writes`), and writes them with `FencedWrites`; once
acknowledged, `rules_propagation` builds the requests of each broker and `propagator` sends them
until they are answered.

The path of such a request on a broker: `broker_handlers/controller_requests`, one queue in
`control_requests`, `rules_received_metadata` refuses or returns records, and `ControlledPartitions`
starts, moves or stops replicas. Configurations and ACLs come another way: `config_watch` reads the
znodes that changed.

What is hard. A lost connection leaves a write in doubt: it is read back, and found done if the
znode has the next version and the written content. Brokers write znodes, too (ISRs below 2.7-IV2,
configurations): the writer then reads the znode again and repeats its decision
(`ZnodeWriter.again`). An expired session ends everything that depended on it, at once. A controller
must survive znodes that it cannot parse: it reports them, and ignores the topic as a whole.

Releases are levels of inter.broker.protocol.version, which brokers may differ in during an upgrade:
AlterPartition since 2.7-IV2, topic ids since 2.8-IV0, AllocateProducerIds since 3.0-IV0; migrating
brokers (`migrating_mode`) since 3.4.

Read `rules_tree`, `rules_server`, `rules_keeper` for the server; `broker_mode`, `control_requests`,
`rules_received_metadata` for brokers; `controller`, `controller_context`, `metadata_writer`,
`propagator` for the controller; `rules_znodes` and `rules_znode_writes` for the translation.
docs/zookeeper.md is the user's view.
"""
