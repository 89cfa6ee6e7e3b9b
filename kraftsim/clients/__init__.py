"""Clients: kraftsim's own producers and consumers, which the scenarios run as their workload, and
what other clients sent and learned, read from their frames.

They speak Kafka's protocol to any broker, and they are state machines like the rest: rules decide
what is sent next, a loop executes it. A scenario can thus replace a rule (a historical client bug,
a design that was not adopted), pause a client, and repeat a run byte for byte. In Kafka:
org.apache.kafka.clients.producer.internals.{Sender, TransactionManager, RecordAccumulator},
org.apache.kafka.clients.consumer.internals.{ConsumerCoordinator, Fetcher}.

The clients: `producer` (idempotent, acks=all; KIP-98, KIP-360), `transactional_producer` (KIP-98,
KIP-447, KIP-890), `group_consumer` (classic protocol; KIP-429, KIP-447), `share_consumer`
(KIP-932), `reader` (assigned partitions, start to end), `producer_id_client` (allocates ids and
uses none).

Invariants. A batch keeps its sequence while its result is unknown; it is retried only when all
earlier ones of its partition are resolved; it gets a new identity only once it is certain that it
is not in the log. So a record is in the log once, or its result is unknown and reported as such. A
transactional producer has one coordinator request in flight at a time. A group member that was
expelled keeps its former generation until the application has released its partitions, so that its
commits are fenced.

The path of a record:

    producer               `send` makes a RecordGiven
    step_loop              feeds the rules one input at a time, executes the effects in order, and
                           arms one timer for `wake_at_ms`
    rules_idempotent_...   `IdempotentProducer.step` adds it to the queue of its partition
    rules_producer_steps   `PartitionQueue` decides when a batch is closed and sendable, and its
                           sequence at the first send
    producer               sends `SendProduce` over `cluster_connections`, in order for each broker
    rules_idempotent_...   `_settle_batch` meets the response: delivered, duplicate, out of order,
                           retriable, or refused
    producer               emits the event of the result, and resolves what the application awaits

A transactional producer wraps such a sender (`GatedProducer`), which may send to a partition only
once the coordinator has it, or, with transaction.version 2, at once. `meaning_of` in
`rules_transaction_steps` is the table of what each error means for each request: retry, abort,
fatal.

What is hard. An error may arrive for a batch while earlier ones are unresolved: out of order is
then temporary, otherwise the sequence is lost and the epoch must be bumped. A lost response leaves
EndTxn in doubt. With transaction.version 2 the epoch changes with each transaction, and a retry is
recognized by it. Metadata may name a leader that has changed.

Variants stand beside the shipped rules: `rules_producer_variants` (KIP-758, KIP-447's text,
sequences that do not wrap), `GenericConsumer` in `group_consumer` (the alternative API of KIP-447).

Other clients (aiokafka in virtual time) emit no events. `rules_observed_frames` reads the bytes of
their connections and emits the same events for them; `rules_observed_producers` decides what a
producer's frames prove, `rules_observed_consumers` a consumer's. They know nothing of simulation:
something else passes the bytes on (`kraftsim/lab/application/observer.py`).

Read `rules_producer_steps`, `rules_idempotent_producer`, `step_loop`, `producer`; then
`rules_transaction_steps` and `rules_transactional_producer`; then `rules_member_steps`,
`rules_group_member` (the classic protocol), `rules_heartbeat_member` with `rules_consumer_member`
(KIP-848) and `rules_streams_member` (KIP-1071), and `group_consumer`; then `rules_share_consumer`
and `share_consumer`.
"""
