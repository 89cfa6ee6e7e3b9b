"""Producer ids: blocks on the controller, and the two ways in which a broker obtains and spends them.   Source: KIP-730."""
