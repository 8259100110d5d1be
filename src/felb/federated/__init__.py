"""Messages, client, server, aggregation, recipes: pure, engine-independent, no I/O, no clock."""
