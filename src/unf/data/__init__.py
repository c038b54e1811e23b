"""Datasets, read from prepared arrays."""

from ._images import DATASETS, DataError, Images, load_images

__all__ = ["DATASETS", "DataError", "Images", "load_images"]
