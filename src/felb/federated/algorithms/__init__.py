"""Federated algorithms, one a file."""
