"""What can be learned about a model by fitting it again: stability of components, number of components."""

from felb.analysis.choice_estimator import FederatedBMFCV
from felb.analysis.held_out import HeldOut, held_out_cells
from felb.analysis.rank_choice import RankChoice, choose_k
from felb.analysis.refits import stability
from felb.analysis.stability_record import Stability

__all__ = ["FederatedBMFCV", "HeldOut", "RankChoice", "Stability", "choose_k", "held_out_cells", "stability"]
