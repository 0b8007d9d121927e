"""Single instances: belief propagation, AMP, and referees that owe nothing to the cavity method."""

from fermibose.cavity.amp import amp
from fermibose.cavity.bp import belief_propagation
from fermibose.cavity.estimate import Estimate, History
from fermibose.cavity.instance import Instance, Pairs, sample_instance

__all__ = [
    "Estimate",
    "History",
    "Instance",
    "Pairs",
    "amp",
    "belief_propagation",
    "sample_instance",
]
