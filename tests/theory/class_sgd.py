"""SGD of K units on C classes with all N weights and inputs, pair by pair as it is written."""

import itertools
import math

import numpy as np


def class_means(gram, n, rng):
    """Vectors u_c with u_c·u_d/N = G_cd, (C, N)."""
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 0))
    basis = np.linalg.qr(rng.standard_normal((n, len(gram))))[0].T
    return math.sqrt(n) * root @ basis


def gradient(classes, w, x, labels):
    """K × the gradient of the mean energy of all pairs by w, (K, N), looping over pairs."""
    problem, units = classes.problem, len(w)
    z = x @ w.T
    phi = problem.phi(z)
    slope = 1 - np.tanh(z) ** 2
    if problem.activation == "half_tanh":
        slope = slope / 2
    g = np.zeros_like(z)
    pairs = list(itertools.combinations(range(len(x)), 2))
    for i, j in pairs:
        apart = phi[i] - phi[j]
        push = problem.pair_energy.force(float((apart**2).mean()), labels[i] == labels[j])
        g[i] += push * 2 * apart / units * slope[i]
        g[j] -= push * 2 * apart / units * slope[j]
    return units * g.T @ x / len(pairs)


def draw(classes, means, batch, rng):
    """Samples (batch, N) and their classes."""
    n = means.shape[1]
    labels = rng.integers(0, classes.count, batch)
    noise = rng.standard_normal((batch, n)) * classes.problem.delta / math.sqrt(n)
    return means[labels] / n + noise, labels


def step(classes, w, means, *, learning_rate, batch, rng):
    """The weights after one step."""
    x, labels = draw(classes, means, batch, rng)
    keep = 1 - learning_rate * classes.problem.weight_decay / w.shape[1]
    return keep * w - learning_rate * gradient(classes, w, x, labels)


def overlaps(w, means):
    """M and Q."""
    n = w.shape[1]
    return w @ means.T / n, w @ w.T / n
