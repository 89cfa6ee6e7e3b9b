"""Producer ids: block allocation on the controller, and the brokers' block clients.   Source: KIP-730."""
