"""Pictures of weight spaces, terms and layers, as SVG and HTML in strings."""

from ._coefficients import draw_coefficients
from ._diagrams import draw_space, draw_terms
from ._notebook import to_html

__all__ = ["draw_coefficients", "draw_space", "draw_terms", "to_html"]
