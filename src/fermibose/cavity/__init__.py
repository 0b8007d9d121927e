"""Single instances: belief propagation, AMP, and referees that owe nothing to the cavity method."""

from fermibose.cavity.amp import amp
from fermibose.cavity.bp import belief_propagation, bp_memory
from fermibose.cavity.figures import draw_descents, draw_trajectory, draw_walk
from fermibose.cavity.ground import GroundState, Minima, ground_state, minima
from fermibose.cavity.instance import Instance, Pairs, Samples, sample_instance
from fermibose.cavity.messages import Estimate, History, state_evolution
from fermibose.cavity.online import Runs, sgd
from fermibose.cavity.sampling import Sampling, hmc

__all__ = [
    "Estimate",
    "GroundState",
    "History",
    "Instance",
    "Minima",
    "Pairs",
    "Runs",
    "Samples",
    "Sampling",
    "amp",
    "belief_propagation",
    "bp_memory",
    "draw_descents",
    "draw_trajectory",
    "draw_walk",
    "ground_state",
    "hmc",
    "minima",
    "sample_instance",
    "sgd",
    "state_evolution",
]
