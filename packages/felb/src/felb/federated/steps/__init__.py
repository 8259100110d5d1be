"""Steps of federated algorithms: generators that request sums and return a result."""
