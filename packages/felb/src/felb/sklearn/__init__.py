"""Scikit-learn estimators of the methods, on the engines of this machine."""
