"""Federated algorithms, one per file."""
