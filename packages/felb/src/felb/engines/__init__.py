"""Engines that execute a federation: in this process, or over the workers of a Dask cluster."""
