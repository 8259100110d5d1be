"""The Dask engine: clients are blocks of rows on the workers of a cluster; needs the extra ``dask``."""
