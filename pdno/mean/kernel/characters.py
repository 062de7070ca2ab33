"""Characters of a symmetry group: they split regression on all symmetric copies of the pairs into smaller systems.

Let A be a subgroup of commuting involutions of the group G. It has as many characters χ: A → {−1, 1} as elements, and an
output is the sum of its components

    u_χ = |A|⁻¹ Σ_h χ(h) h u,        h u_χ = χ(h) u_χ for h ∈ A.

With representatives B of the cosets, G = {h b: h ∈ A, b ∈ B}. For an invariant kernel, k(g a, g a') = k(a, a'), regression on
all copies (g a_i, g u_i) of n pairs decouples into |A| systems with |B| n rows each: row (b, i) belongs to the copy b a_i, the
kernel of the system of χ is

    k_χ(a, a') = Σ_h χ(h) k(a, h a'),

and its targets are the components u_χ.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from ..._typing import Array, Floats
from ...symmetry import Symmetry, multiplication_table

__all__ = ["Characters"]


class Characters:
    """A group, its largest subgroup A of commuting involutions that a greedy search finds, and the characters of A.

    Args:
        elements: the elements of the group, the identity first.
        a, u: a pair, (1, channel, *grid) each; only the shapes matter.

    Attributes:
        products: multiplication table of the group, (element, element).
        subgroup: indices of the elements of A.
        signs: χ(h), (character, element of A).
        copies: indices of the elements of B.

    >>> from pdno.grid import Grid
    >>> from pdno.symmetry import group
    >>> split = Characters(group("square", Grid.uniform(4, dim=2)), np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 4, 4)))
    >>> len(split.signs), len(split.copies)
    (4, 2)
    """

    def __init__(self, elements: Sequence[Symmetry], a: Array, u: Array) -> None:
        self.elements, self.products = tuple(elements), multiplication_table(elements, a, u)
        self.subgroup, self.signs = [0], np.ones((1, 1))
        for g in range(1, len(elements)):
            commutes = (self.products[g, self.subgroup] == self.products[self.subgroup, g]).all()
            if g not in self.subgroup and self.products[g, g] == 0 and commutes:
                self.subgroup += [int(self.products[g, h]) for h in self.subgroup]
                self.signs = np.block([[self.signs, self.signs], [self.signs, -self.signs]])
        self.copies: list[int] = []
        for b in range(len(elements)):
            if not any(b in self.products[self.subgroup, other] for other in self.copies):
                self.copies.append(b)

    def matrices(self, gram: Callable[[Symmetry], Floats], new: bool = False) -> list[Floats]:
        """Return the matrix of k_χ for each character.

        Args:
            gram: function that returns the matrix k(a_i, g a_j) for an element g.
            new: the a_i are new inputs and have no copies.

        Returns:
            For each character (|B| n, |B| n), or (inputs, |B| n) if `new`.
        """
        inverse = (self.products == 0).argmax(axis=1)
        rows = [0] if new else self.copies
        matrices: list[Floats] = []
        for g, element in enumerate(self.elements):
            k = gram(element)
            n, m = k.shape
            matrices = matrices or [np.zeros((len(rows) * n, len(self.copies) * m)) for _ in self.signs]
            for (i, b), (j, c) in product(enumerate(rows), enumerate(self.copies)):
                h = self.products[self.products[b, g], inverse[c]]  # k(b a, h c a') = k(a, g a') for g = b⁻¹ h c
                if h in self.subgroup:
                    for matrix, sign in zip(matrices, self.signs[:, self.subgroup.index(h)], strict=True):
                        matrix[i * n : (i + 1) * n, j * m : (j + 1) * m] += sign * k
        return matrices

    def parts(self, u: Floats, centre: Floats) -> Iterator[Floats]:
        """Yield the targets of each character: the components u_χ of the rows (b, i), (|B| n, channel, *grid).

        Args:
            u: outputs, (n, channel, *grid).
            centre: field to subtract from all outputs, invariant under the group, (1, channel, *grid).
        """
        for signs in self.signs:
            rows = []
            for b in self.copies:
                maps = [self.elements[self.products[h, b]].on_u for h in self.subgroup]
                rows.append(sum(sign * (on_u(u) - on_u(centre)) for on_u, sign in zip(maps, signs, strict=True)) / len(maps))
            yield np.concatenate(rows)

    def gather(self, rows: Floats) -> Floats:
        """Return the coefficients c_i of the pairs from those of the rows (b, i): the mean of b⁻¹ c_{b,i} over b.

        Only the linear part of the maps is applied: (|B| n, channel, *grid) → (n, channel, *grid).
        """
        groups = np.split(rows, len(self.copies))
        inverses = [self.elements[b].undo for b in self.copies]
        fields = [undo(c) - undo(np.zeros_like(c[:1])) for undo, c in zip(inverses, groups, strict=True)]
        return np.asarray(np.mean(fields, axis=0))
