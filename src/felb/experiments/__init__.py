"""Jobs that run methods on data and store results, and the experiments of the paper."""

from felb.experiments.job import Job
from felb.experiments.runs import fit, resume, simulate, unfinished_job

__all__ = ["Job", "fit", "resume", "simulate", "unfinished_job"]
