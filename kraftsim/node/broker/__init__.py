"""The broker: keeps partitions, serves clients, follows the metadata log.   Source: kafka.server.BrokerServer."""
