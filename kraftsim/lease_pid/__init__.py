"""lease_pid: an earlier design of the idempotent producer, as a system of its own, to be compared
with Kafka's.

The lease_pid draft precedes KIP-98. A producer leases an id per partition from the partition's
leader, which returns the id, a generation and a sequence number; it numbers its messages, and the
leader appends a message if its number is one above the last one and its generation is the known one
or the next. Unused ids expire. There are no epochs from a central coordinator and no transactions:
fencing is per partition, by the generation. Ids come from one counter in ZooKeeper, of which each
server takes a hundred at a time.

Nothing here is shared with Kafka's producer state, apart from sequence arithmetic and the layers
below; the servers have a protocol of their own (`protocol/lease_pid`), and replicate with the
ZooKeeper of `kraftsim/zookeeper`. docs/producer-variants.md compares both designs under the same
faults.

What the draft promises, and what is checked: a retried message is in the log once; a zombie whose
successor has written is refused; followers and recovering servers have the same producer state as
the leader, because it follows from the log alone. What it cannot promise is visible, too: two
leases of one id before either producer has written get the same generation, so neither fences the
other; a producer whose lease has expired gets another id and may write its unacknowledged messages
again.

The path of a message:

    client           `LeasingProducerClient.send` queues it with its partition
    rules_producer   `LeasingProducer` leases an id if it has none (`SendLeaseRequest`), then
                     numbers and sends (`SendMessages`); after any error it waits until nothing is
                     in flight
    links            the wire: several requests in flight, answered in order
    server           `LeaseServer` finds the replica
    replica          appends message by message, and acknowledges when all in-sync replicas have it
    rules_broker     `LeasedPartition.check`: Next, Repeated, or a refusal; `apply` once it is
                     written
    followers        replicate, take leadership, and change the in-sync replicas in a znode

A lease is `decide_lease` in `rules_broker`: it reads the partition's state and changes only the
reserve of ids; if that is empty, `Coordination` in `followers` advances the counter by
compare-and-set.

What is hard is the text: it contradicts itself and leaves gaps. Each reading that it permits is a
value of `Readings` (where expiry counts from, what the next generation starts with, the answer to a
repeated or an unknown message, the representation of the table), and the first of each keeps the
draft's guarantees. Of the three tables one follows the text literally and shows why it fails: ids
do not arrive in order.

Read `rules_broker` from top to bottom, then `rules_producer`, `replica`, `server`.
"""
