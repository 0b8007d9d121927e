"""Replica theory of all pairs by plain damped iteration on uniform grids: an oracle for instances.

n = γN samples, E = (1/n) Σ_{i<j} H_ij + λ|w|²/2. A sample of class y, taught a, has the field
ω = y m M + Δ√Q v and feels h_a(z), the mean energy with all others.
"""

import math

import numpy as np
from scipy.interpolate import CubicSpline

V = np.linspace(-7, 7, 281)
GAUSS = np.exp(-(V**2) / 2) / np.exp(-(V**2) / 2).sum()


def populations(problem):
    """(class, taught, fraction)."""
    e, pi = problem.mislabelled, {1: problem.balance, -1: 1 - problem.balance}
    parts = [(y, y * s, pi[y] * (1 - e if s == 1 else e)) for y in (1, -1) for s in (1, -1)]
    return [part for part in parts if part[2] > 0]


def pair_energy(problem, same, z1, z2):
    d2 = (problem.phi(z1) - problem.phi(z2)) ** 2
    gap = problem.d_f - d2
    return d2 / 2 if same else (gap + np.sqrt(gap**2 + problem.softness)) / 4


def finite_temperature(problem, *, step=0.02, reach=9.0, tol=1e-7, start=(1.0, 1.0, 0.1)):
    """M, q, Q, mean energy of a pair, βf and AT at inverse temperature β."""
    beta, gamma, delta, m = problem.beta, problem.samples, problem.delta, problem.m
    z = np.arange(-reach, reach + step / 2, step)
    table = {s: pair_energy(problem, s, z[:, None], z) for s in (True, False)}
    parts = populations(problem)
    M, Q, G = start[0], start[1], 1 / start[2]
    h = {a: np.zeros_like(z) for a in (1, -1)}
    for sweep in range(3000):
        s2 = delta**2 / G
        rho = {a: np.zeros_like(z) for a in (1, -1)}
        sums = dict.fromkeys(("yf", "f2", "df", "df2", "lnZ"), 0.0)
        for y, a, share in parts:
            omega = y * m * M + delta * math.sqrt(Q) * V
            d = z - omega[:, None]
            log = -(d**2) / (2 * s2) - beta * h[a]
            top = log.max(1, keepdims=True)
            p = np.exp(log - top)
            Z = p.sum(1, keepdims=True)
            p /= Z
            mean = (p * d).sum(1)
            f = mean / s2
            df = ((p * d**2).sum(1) - mean**2 - s2) / s2**2
            log_z = (top + np.log(Z * step / math.sqrt(2 * math.pi * s2)))[:, 0]
            sums["yf"] += share * y * (GAUSS @ f)
            sums["f2"] += share * (GAUSS @ f**2)
            sums["df"] += share * (GAUSS @ df)
            sums["df2"] += share * (GAUSS @ df**2)
            sums["lnZ"] += share * (GAUSS @ log_z)
            rho[a] += share * (GAUSS @ p)
        new_h = {a: table[True] @ rho[a] + table[False] @ rho[-a] for a in (1, -1)}
        new_G = beta * problem.weight_decay - gamma * delta**2 * sums["df"]
        new_M = gamma * m * sums["yf"] / new_G
        new_Q = new_M**2 + gamma * delta**2 * sums["f2"] / new_G**2
        change = max(abs(new_M - M), abs(new_Q - Q), abs(new_G - G) / new_G)
        change = max(change, *(np.abs(new_h[a] - h[a]).max() for a in h))
        if sweep > 0:
            M, Q, G = (M + new_M) / 2, (Q + new_Q) / 2, (G + new_G) / 2
        h = {a: (h[a] + new_h[a]) / 2 if sweep else new_h[a] for a in h}
        if change < tol and sweep > 1:
            break
    else:
        raise AssertionError(f"the reference did not converge: {change:.1e}")
    energy = sum(rho[a] @ new_h[a] for a in h)
    q = Q + 1 / G
    minus_beta_f = (
        math.log(2 * math.pi * math.e / G) / 2 + (Q - M**2) * G / 2
        - beta * problem.weight_decay * q / 2 + gamma * (sums["lnZ"] + beta / 2 * energy)
    )  # fmt: skip
    at = gamma * delta**4 / G**2 * sums["df2"]
    return {"M": M, "q": q, "Q": Q, "energy": energy, "free_energy": -minus_beta_f / beta, "AT": at}


def zero_temperature(problem, *, step=0.01, reach=8.0, tol=1e-7, start=(1.0, 1.0, 2.0)):
    """M, q, χ, mean energy of a pair and E/N of the ground state."""
    gamma, delta, m, decay = problem.samples, problem.delta, problem.m, problem.weight_decay
    z = np.arange(-reach, reach + step / 2, step)
    parts = populations(problem)
    M, q, chi = start
    fields = {
        (y, a): y * m * M + delta * math.sqrt(q) * V for y, a, _ in parts
    }  # z* in a flat potential
    h = dict.fromkeys((1, -1), 0 * z)
    for sweep in range(3000):
        new_h = {}
        for a in (1, -1):
            new_h[a] = sum(
                share * pair_energy(problem, a == b, z[:, None], fields[y, b]) @ GAUSS
                for y, b, share in parts
            )
        gap = max(np.abs(new_h[a] - h[a]).max() for a in h)
        h = {a: (h[a] + new_h[a]) / 2 if sweep else new_h[a] for a in h}
        yF = F2 = vF = energy = 0.0
        c = delta**2 * chi
        for y, a, share in parts:
            omega = y * m * M + delta * math.sqrt(q) * V
            spline = CubicSpline(z, h[a])
            best = z[((z - omega[:, None]) ** 2 / (2 * c) + h[a]).argmin(1)]
            found = best
            for _ in range(6):
                slope = (found - omega) / c + spline(found, 1)
                found = found - slope / np.maximum(1 / c + spline(found, 2), 0.1 / c)
                found = np.clip(found, best - step, best + step)
            fields[y, a] = found
            F = (omega - found) / c
            yF += share * y * (GAUSS @ F)
            F2 += share * (GAUSS @ F**2)
            vF += share * (GAUSS @ (V * F))
            energy += share * (GAUSS @ spline(found))
        new_chi = 1 / (decay + gamma * delta / math.sqrt(q) * vF)
        new_M = -new_chi * gamma * m * yF
        new_q = new_M**2 + new_chi**2 * gamma * delta**2 * F2
        change = max(abs(new_M - M), abs(new_q - q), abs(new_chi - chi) / new_chi, gap)
        M, q, chi = (M + new_M) / 2, (q + new_q) / 2, (chi + new_chi) / 2
        if change < tol and sweep > 1:
            break
    else:
        raise AssertionError(f"the reference did not converge: {change:.1e}")
    total = gamma / 2 * energy + decay * q / 2
    return {"M": M, "q": q, "chi": chi, "energy": energy, "free_energy": total}
