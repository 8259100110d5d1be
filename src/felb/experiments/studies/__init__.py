"""The experiments of the paper, one file each; `felb.experiments.catalogue` lists them."""
