"""Federated algorithms: clients release additive updates, a server makes the next request of their sum."""
