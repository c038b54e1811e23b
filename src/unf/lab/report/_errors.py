"""What goes wrong with reports."""


class ReportError(ValueError):
    """Something that cannot be reported: what is wrong, where, and the remedy."""
