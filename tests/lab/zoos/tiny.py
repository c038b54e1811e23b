"""A zoo so small that it is built in seconds."""

from unf.lab.zoos import TinyRNN, build

RECIPE = TinyRNN(hidden=3, digits=1, steps=4, problems=30, batch_sizes=(2, 3), dtype="float32")
MODELS, CHUNK = 14, 4


def build_tiny(path, recipe=RECIPE, **options):
    return build(
        recipe, path, **{"models": MODELS, "chunk": CHUNK, "show_progress": False, **options}
    )


def contents(path):
    """Every file of a zoo with its bytes."""
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}
