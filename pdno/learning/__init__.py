"""How a network learns from pairs: the loop, going on after anything, normalisation."""
