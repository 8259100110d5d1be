"""The scikit-learn faces of the recipes, on the local engine."""
