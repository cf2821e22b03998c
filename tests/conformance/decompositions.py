"""Decompositions are unique only up to signs, phases and order: what of them is compared with the CPU's instead.

Each function takes the results as lists of CPU tensors and gives those that must be equal: the product, the values, and that the
factors are orthonormal where they are to be.
"""

import torch


def _gram(x):
    return x.mH @ x


def _svd(u, s, vh):
    k = s.shape[-1]
    if not u.numel() and not vh.numel():  # compute_uv=False
        return [s]
    return [(u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], s, _gram(u), _gram(vh.mH)]


def _eigh(values, vectors):
    return [(vectors * values.unsqueeze(-2)) @ vectors.mH, values, _gram(vectors)]


def _sorted(values):
    """Complex numbers by real, then imaginary part, rounded so that a conjugate pair keeps its order."""
    keys = torch.view_as_real(values.to(torch.complex128)).mul(1e4).round()
    by_imaginary = keys[..., 1].argsort(dim=-1, stable=True)
    by_real = keys[..., 0].gather(-1, by_imaginary).argsort(dim=-1, stable=True)
    return values.gather(-1, by_imaginary.gather(-1, by_real))


def _eig(values, vectors):
    lengths = torch.linalg.vector_norm(vectors, dim=-2)
    product = (vectors * values.unsqueeze(-2)) @ torch.linalg.inv(vectors) if vectors.numel() else vectors
    return [product, _sorted(values), lengths]


def _qr(q, r):
    if not q.numel():  # mode="r", or nothing at all
        return [r.abs()]
    return [q @ r, r.abs(), _gram(q)]


CANONICAL = {
    "svd": lambda u, s, v: _svd(u, s, v.mH),
    "linalg.svd": _svd,
    "linalg.eigh": _eigh,
    "linalg.eig": _eig,
    "linalg.eigvals": lambda values: [_sorted(values)],
    "qr": _qr,
    "linalg.qr": _qr,
}


def canonical(entry, results):
    """`results` themselves where they are unique."""
    if entry.name not in CANONICAL:
        return results
    return CANONICAL[entry.name](*[r.detach().cpu() for r in results])
