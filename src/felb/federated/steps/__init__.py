"""Parts of federated algorithms: generators that ask for sums and return what is publicly known afterwards."""
