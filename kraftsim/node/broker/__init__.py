"""The broker: hosts partition replicas, serves clients, follows the metadata log.

Source: kafka.server.BrokerServer.
"""
