"""The records of the coordinators' topics: `tNN` of `__transaction_state`, `gNN` of
`__consumer_offsets`, `sNN` of `__share_group_state`.
"""
