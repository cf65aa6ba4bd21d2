"""Handing condensed sets over: plain image files for any framework, and other people's condensed images as artifacts."""

from tinyset.exchange.readers import import_images
from tinyset.exchange.writers import FORMATS, export

__all__ = ["FORMATS", "export", "import_images"]
