"""KRaft: the controllers keep one log of cluster metadata, by a Raft that fetches.

A quorum of voters elects a leader; the leader appends, the others fetch, and what a majority has is
committed. Unlike Raft's AppendEntries, replication is Kafka's Fetch, so the followers drive it, and
a diverging log is found by epochs (KIP-595). Snapshots replace the beginning of the log (KIP-630),
voters are added and removed while it runs (KIP-853), and a pre-vote keeps a returning voter from
disturbing a healthy leader (KIP-996). Brokers are observers: they fetch, and never vote. In Kafka:
org.apache.kafka.raft.{KafkaRaftClient, QuorumState, LeaderState}.

Invariants. One vote per epoch, one leader per epoch, one transition function (`Quorum._enter`) that
checks both. A vote, a new epoch and a truncation are durable before another node can learn of them.
A record is committed when a majority has flushed it and the leader has a record of its own epoch
there, too (KAFKA-12619); the leader counts itself only up to its flushed offset (KAFKA-10533; in
Kafka when it appends). A committed record is never truncated. A replica that was leader before a
restart does not lead the same epoch again (KAFKA-10527).

Rules and shell are split strictly: `RaftReplica` gets every input (a request, a response, a
failure, a flush, the time) and returns effects; `RaftNode` executes them in one queue. Its
docstring explains why one queue makes durability and order correct. The path of a Vote:

    controller_handlers/quorum     passes the request on (`quorum_requests`)
    raft_node                      `ask` hands it to the rules, then runs the queue
    rules_replica                  `on_request` selects the rule
    rules_elections                `on_vote_request` adopts a higher epoch, checks the log of the
                                   candidate, and grants at most once
    rules_quorum                   `vote_for` enters the role with the vote: `Persist`, then `Reply`
    raft_node, metadata_store      hold the queue until `quorum-state` is on disk; then the response
                                   leaves

A Fetch is different, as it may wait: `controller_handlers/log_fetches` and `quorum_requests` ask
`rules_serving.fetch_outcome` whether the logs agree, and keep the request until there are records
(for a voter) or commits (for an observer). Committed batches go to a `MetadataListener`: that of a
controller replays them into its state, that of a broker into its image (`kraftsim/metadata`).

What is hard. The transitions of roles: a response may belong to a former epoch or role, so `Peers`
forgets all requests at each transition. Voters may change while they vote: a voter set is in force
when it is appended, committed or not, and is reverted with a truncation. A voter without its disk
must not pose as its former self: with kraft.version 1 voters are keyed by directory id. A sole
voter passes through three roles in one poll, and needs one write for them.

Releases. Pre-votes since 4.0. Messages are built in the latest version, and `rules_messages`
removes what an older peer lacks. kraft.version 0 has its voters in the configuration, 1 in the log;
a quorum becomes dynamic when it is formatted.

Read `rules_roles`, `rules_quorum`, `rules_elections`, `rules_leading`, `rules_following`, then
`rules_effects` and `raft_node` for their execution.
"""
