"""Federated algorithms: clients release additive updates; the server computes the next request from their sum."""
