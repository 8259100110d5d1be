"""Boolean matrix factorization of AnnData by the conventions of scverse: results are stored in the object itself."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.analysis.refits import stability
from felb.data.coercion import read_partly_known
from felb.errors import InputError
from felb.sklearn.federated import FederatedBMF

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix

__all__ = ["bmf"]


def bmf(
    adata: Any,
    n_components: int | str = 10,
    *,
    layer: str | None = None,
    use_raw: bool = False,
    key: str = "bmf",
    client_key: str | None = None,
    binarize_threshold: float = 0.0,
    n_resamples: int = 0,
    random_state: int = 0,
    copy: bool = False,
    **parameters: Any,
) -> Any:
    """Factorize the cells of an AnnData object and store components and assignments in it.

    A cell has a gene if its value is above the threshold. Stored are

    - ``obsm["X_bmf"]``: which components each cell has, cells × components, 0 or 1,
    - ``obs["bmf_0"]``, ``obs["bmf_1"]``, …: the same as categories "no" and "yes", for plots by name, such as
      ``scanpy.pl.umap(adata, color="bmf_0")``,
    - ``varm["bmf"]``: which genes each component has, genes × components (``raw.varm`` with `use_raw`),
    - ``uns["bmf"]``: ``params``, ``scores``, ``supports``, ``genes`` (a line for each component and gene), and
      ``stability`` if it was asked for.

    Parameters
    ----------
    adata : AnnData
    n_components : number of components, or "mdl" to find it
    layer : name of the layer to use instead of ``X``
    use_raw : use ``adata.raw``, with its genes, instead of ``X``
    key : name under which results are stored
    client_key : column of ``obs`` with the client of each cell, for example a hospital; cells of different clients are
        not centralized
    binarize_threshold : values above it are 1. Data with negative values has been scaled, so that 0 is its mean and not
        the absence of a gene; that is a warning, and counts (a layer or ``raw``) are a better choice
    n_resamples : number of refits for the stability of the components; 0 to leave it out
    random_state : seed
    copy : return a changed copy instead of changing `adata`
    parameters : of `felb.FederatedBMF`

    Examples
    --------
    >>> import anndata, felb
    >>> cells = anndata.AnnData(felb.data.planted(200, 30, 3, noise=0.02, seed=0).A.toarray().astype("float32"))
    >>> felb.scverse.bmf(cells, 3)
    >>> cells.obsm["X_bmf"].shape, cells.varm["bmf"].shape, sorted(cells.uns["bmf"])
    ((200, 3), (30, 3), ['genes', 'params', 'scores', 'supports'])
    >>> list(cells.obs)
    ['bmf_0', 'bmf_1', 'bmf_2']
    """
    adata = adata.copy() if copy else adata
    matrix = _matrix(adata, layer, binarize_threshold, use_raw=use_raw)
    groups = None if client_key is None else _clients(adata, client_key)
    model = FederatedBMF(n_components, random_state=random_state, **parameters)
    U = model.fit_transform(matrix, groups=groups)
    adata.obsm[f"X_{key}"] = U.astype(np.float32)
    (adata.raw if use_raw else adata).varm[key] = np.ascontiguousarray(model.components_.T)
    _store_columns(adata, key, U)
    used = {"layer": layer, "use_raw": use_raw, "client_key": client_key, "binarize_threshold": binarize_threshold}
    stored: dict[str, Any] = {
        # An .h5ad file cannot say that there is no value.
        "params": {name: value for name, value in (_plain(model) | used).items() if value is not None},
        "scores": {} if model.counts_ is None else model.counts_.scores(),
        "supports": np.count_nonzero(U, axis=0) if model.supports_ is None else np.asarray(model.supports_),
        "genes": _tabulate_genes(model.to_frame(matrix)),
    }
    if n_resamples:
        stable = stability(model, matrix, groups=groups, n_resamples=n_resamples, random_state=random_state)
        stored["stability"] = {
            "found": stable.found,
            "match": stable.mean,
            "interval": stable.interval,
            "n_resamples": n_resamples,
        }
    adata.uns[key] = stored
    return adata if copy else None


def _store_columns(adata: Any, key: str, U: Any) -> None:
    """Store which cells have each component as a column of ``obs``; columns of an earlier fit are replaced."""
    import pandas as pd

    own = re.compile(rf"{re.escape(key)}_\d+")
    adata.obs = adata.obs.drop(columns=[name for name in adata.obs.columns if own.fullmatch(str(name))])
    for number in range(U.shape[1]):
        adata.obs[f"{key}_{number}"] = pd.Categorical(np.where(U[:, number], "yes", "no"), ["no", "yes"])


def _tabulate_genes(frame: Any) -> Any:
    """Return the table of components and genes; an .h5ad file stores text and numbers, with row names as text."""
    frame = frame.rename(columns={"feature": "gene"})
    frame.index = frame.index.astype(str)
    return frame


def _matrix(adata: Any, layer: str | None, threshold: float, *, use_raw: bool) -> BinaryMatrix:
    if not hasattr(adata, "var_names"):
        raise InputError(f"bmf takes an AnnData object, got {type(adata).__name__}; use felb.FederatedBMF for others")
    if layer is not None and layer not in adata.layers:
        there = ", ".join(map(str, adata.layers)) or "none"
        raise InputError(f"there is no layer {layer!r}; the layers are {there}", parameter="layer")
    if use_raw and layer is not None:
        raise InputError("give either a layer or use_raw, not both", parameter="use_raw")
    if use_raw and adata.raw is None:
        raise InputError("adata.raw is empty; leave out use_raw, or store the counts there first", parameter="use_raw")
    held = adata.raw if use_raw else adata
    values = held.X if layer is None else adata.layers[layer]
    if hasattr(values, "to_memory"):
        values = values.to_memory()  # of a file that is open
    smallest = values.min() if min(values.shape) else 0  # NaN compares as not smaller
    if threshold >= 0 and smallest < 0:
        warnings.warn(
            f"the values have been scaled (the smallest is {smallest:.3g}): those above {threshold:g} are "
            "above the mean of a gene; use counts instead (layer=, use_raw=True), or choose binarize_threshold",
            UserWarning,
            stacklevel=3,
        )
    names = [str(name) for name in held.var_names]
    if len(set(names)) < len(names):
        raise InputError("names of genes are not unique; call adata.var_names_make_unique() first")
    return read_partly_known(values, binarize_threshold=threshold).with_columns(names)


def _clients(adata: Any, name: str) -> Any:
    if name not in adata.obs.columns:
        there = ", ".join(map(str, adata.obs.columns[:10])) or "none"
        raise InputError(f"obs has no column {name!r}; it has {there}", parameter="client_key")
    return adata.obs[name].astype(str).to_numpy()


def _plain(model: FederatedBMF) -> dict[str, Any]:
    """Return the parameters that can be written to a file, with the number of components that was found."""
    plain = {name: value for name, value in model.get_params().items() if isinstance(value, str | int | float | bool)}
    return plain | {"n_components": len(model.components_)}
