"""What can be wrong with a zoo."""


class ZooError(ValueError):
    """A zoo that cannot be built, read or written: what is wrong, where, and the remedy."""
