"""Small images and text: built in, from prepared arrays, or from official files."""

from ._files import DataError, MissingDataError
from ._images import load_images
from ._text import load_text

__all__ = ["DataError", "MissingDataError", "load_images", "load_text"]
