"""What can be learned about a model by fitting it again: stability of components, number of components."""

from felb.analysis.rank_choice import FederatedBMFCV, HeldOut, RankChoice, choose_k, held_out_cells
from felb.analysis.refits import Stability, stability

__all__ = ["FederatedBMFCV", "HeldOut", "RankChoice", "Stability", "choose_k", "held_out_cells", "stability"]
