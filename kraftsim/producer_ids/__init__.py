"""Producer ids, from the metadata log to the client.

A producer id must never be given to two producers. The controller allocates blocks of 1,000 ids to
brokers: `rules_allocation` decides which block is next and proposes a ProducerIdsRecord, and only
when the quorum has committed the record does
`kraftsim.producer_ids.controller_handlers.k67_allocate_producer_ids` respond. So a controller that
fails in between wastes a block, but the next controller reads the record, or none, and cannot
allocate the same ids again.

A broker returns ids from its block: `rules_block_clients` decides when to request the next one (on
demand, prefetching, as ZooKeeper mode does), `broker` carries its effects out and sends the
requests, and `kraftsim.producer_ids.broker_handlers.k22_init_producer_id` returns an id to the
client, at once or when a block has arrived. A restarted broker starts with an empty block: what was
left of the former one is wasted, never reused.

    rules_allocation     blocks, responses, numbered requests, the block znode; the      pure
                         controller's side, and the variants of KIP-730
    rules_block_clients  the broker's side, and the variants                             pure
    broker               runs a broker's source; the channels that a variant may use
    controller           the rate limit that KIP-730 describes
    zookeeper            the block znode, written by the controller or by each broker
"""
