"""Kernels in C++ for what torch leaves on the table on CPUs, compiled once per machine and called through ctypes."""

from tinyset.kernels.build import library
from tinyset.kernels.classifier import Classifier
from tinyset.kernels.convnet import Features, suits

__all__ = ["Classifier", "Features", "library", "suits"]
