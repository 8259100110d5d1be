"""Secure aggregation: the server learns the sum of the sites' whole numbers and no site's own."""
