"""The experiments of the paper, one file each; `felb_paper.catalogue` lists them."""
