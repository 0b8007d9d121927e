"""The machine for scikit-learn."""

from fermibose.estimator.classifier import FermiBoseClassifier
from fermibose.estimator.transformer import FermiBoseTransformer

__all__ = ["FermiBoseClassifier", "FermiBoseTransformer"]
