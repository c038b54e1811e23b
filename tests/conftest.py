"""All tests run with shapes checked at run time, in 64 bit, without implicit rank promotion."""

import jax
import jaxtyping

jaxtyping.install_import_hook("unf", "beartype.beartype")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
