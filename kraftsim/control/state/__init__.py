"""The state of a running cluster: requests to its brokers and its event logs in, one
`ClusterSnapshot` out.

`cluster_snapshot` has the types that the HTTP API, the page and the metrics share,
`snapshot_reader` takes snapshots.
"""
