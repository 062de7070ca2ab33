"""u | a = m(a) + t(a) S r, and what all models share: learning, answering, saving."""
