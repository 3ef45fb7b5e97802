"""Raw pieces on disk: their form, and reading them."""

from gpu_validation.raw.read import KINDS, pieces, start_of

__all__ = ["KINDS", "pieces", "start_of"]
