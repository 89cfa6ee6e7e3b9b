"""Kafka's property names that are accepted so that a real property file can be used, but change nothing here yet.

Each leaves this list when what it sets is built; see docs/coverage.md.

Source: kafka.server.KafkaConfig of 3.9 and, for what came since, of 4.0 to 4.4.
"""

from kraftsim.core.metadata.config_changes import NEW_KEYS

KEYS_WITHOUT_EFFECT = NEW_KEYS | frozenset(
    {
        "background.threads",
        "log.flush.scheduler.interval.ms",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "queued.max.requests",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
    }
)
