"""What leaves a client, and what it costs."""
