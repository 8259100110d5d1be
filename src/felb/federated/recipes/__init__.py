"""Federated methods, each a client and a server over the same loop."""
