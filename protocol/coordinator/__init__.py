"""The records of the coordinators' topics: `transactions` of `__transaction_state`, `share_states`
of `__share_group_state`, all others of `__consumer_offsets`.
"""
