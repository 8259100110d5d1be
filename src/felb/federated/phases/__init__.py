"""Parts of federated methods that hand public knowledge on to each other, and what composes them."""
