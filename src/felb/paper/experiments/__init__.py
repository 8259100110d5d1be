"""The experiments of the paper, one file each; `felb.paper.catalogue` lists them."""
