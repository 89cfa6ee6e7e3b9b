"""The asyncio shells around the cores: brokers, controllers, and the clients that drive them. They read bytes, ask a core, write bytes."""
