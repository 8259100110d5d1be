"""Jobs that run a method on data and store the result, and the records of results."""
