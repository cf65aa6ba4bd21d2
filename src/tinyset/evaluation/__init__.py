"""Evaluation people can believe: named protocols, any architecture, seeds for everything, costs beside accuracies."""

from tinyset.evaluation.along import accuracy_along
from tinyset.evaluation.corruptions import corrupt, list_corruptions
from tinyset.evaluation.evaluator import Evaluator, Measurement
from tinyset.evaluation.metrics import Spread
from tinyset.evaluation.results import Record, Results
from tinyset.evaluation.rows import Evaluation, Row, evaluate
from tinyset.evaluation.sets import BASELINES, TrainingSet, carve_validation, from_artifact, from_images
from tinyset.evaluation.storage import storage_curve

__all__ = [
    "BASELINES",
    "Evaluation",
    "Evaluator",
    "Measurement",
    "Record",
    "Results",
    "Row",
    "Spread",
    "TrainingSet",
    "accuracy_along",
    "carve_validation",
    "corrupt",
    "evaluate",
    "from_artifact",
    "from_images",
    "list_corruptions",
    "storage_curve",
]
