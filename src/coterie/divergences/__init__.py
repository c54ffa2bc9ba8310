"""How far nodes' data lie apart: exactly by a Gram matrix, or by sketches."""
