"""Tidy tables as data frames, if pandas is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def frame(columns: Mapping[str, list[Any]]) -> Any:
    """Return columns as a pandas DataFrame, or as they are where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        return dict(columns)
    return pd.DataFrame(columns)
