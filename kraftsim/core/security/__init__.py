"""Who a client is and what it may do: the rules of authentication and of access, without connections."""
