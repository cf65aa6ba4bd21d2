"""Labelled images from anywhere: `load_images(source)` -> `Splits` of `ImageSet`s."""

from tinyset.data.arrays import from_arrays, from_dataset
from tinyset.data.imageset import ImageSet, Splits
from tinyset.data.load import load_images

__all__ = ["ImageSet", "Splits", "from_arrays", "from_dataset", "load_images"]
