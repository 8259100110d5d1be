"""Jobs that run methods on data and store results."""
