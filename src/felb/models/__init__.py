"""Centralized estimators, one algorithm per file."""
