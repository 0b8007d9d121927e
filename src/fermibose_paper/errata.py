"""What is printed wrong in the paper, what is right, and what here shows it."""

from typing import NamedTuple


class Erratum(NamedTuple):
    """One correction."""

    where: str
    printed: str
    right: str
    evidence: str


ERRATA = (
    Erratum(
        "loss of the published figures",
        "each pair with its own label",
        "every pair with the average label of its batch: shapes (P, 1) and (P,) were multiplied",
        "recorded boson/fermion distance = ratio of pair counts at every d_F",
    ),
    Erratum("entropy term Ψ_S, main text", "2βλ_w", "βλ_w", "∂f/∂λ_w = q/2 holds to 1e-4"),
    Erratum("−βf", "⟨ln Z⟩", "⟨ln Z⟩/N", "thermodynamic identities in α and β"),
    Erratum("density of z given y, two equations", "exp[+…]", "exp[−…]", "normalisation"),
    Erratum("Boltzmann weight in the text", "e^{βL}", "e^{−βL}", "normalisation"),
    Erratum(
        "meaning of q",
        "variance of the weights",
        "their second moment",
        "q = Q + χ/β; prior limit q → 1/βλ_w",
    ),
    Erratum(
        "T = 0, Ψ₀", "(qχ̂ − χQ̂)/2", "(qχ̂ + χQ̂)/2", "the gradient of f vanishes at the solution"
    ),
    Erratum("T = 0, χ", "−1/(χ̂ + λ)", "+1/(χ̂ + λ)", "β → ∞ extrapolates to it within 5e-4"),
    Erratum("T = 0, Q̂", "opposite sign", "−αΔ² E|∇H*|²", "β → ∞ extrapolates to it"),
    Erratum(
        "T = 0, χ̂",
        "αΔ² E(H₁₁ + H₂₂) = 0.719 at the default point",
        "(αΔ/√q) E[v·∇H*] = 0.1319",
        "the resolvent form, 0.154, misses the jumps of the proximal map",
    ),
    Erratum(
        "replica symmetry",
        "where it fails the iteration does not converge",
        "it converges all the same",
        "default point: AT = 1.68, residual 1e-11",
    ),
    Erratum("D in derivatives", "√(D²)", "signed D = φ₁ − φ₂", "finite differences"),
    Erratum(
        "attacked accuracy",
        "sign of K₁ kept under the integral",
        "it is always −1: Φ((κ − ε)/Δ)",
        "a sampled attack",
    ),
    Erratum("classification error", "M", "|M|", "the symmetry M → −M"),
    Erratum(
        "belief propagation, density of a factor",
        "√(4π²/det V)",
        "1/√(4π² det V)",
        "brute-force integration on a tiny instance",
    ),
    Erratum(
        "belief propagation, ∂f",
        "V⁻¹ missing in the denominator",
        "V⁻¹ included",
        "derivative of ln Z by finite differences",
    ),
    Erratum("cavity loss", "λ_F", "d_F", "a name only"),
    Erratum("loss in the appendix", "λ_w‖w‖²", "(λ_w/2)‖w‖²", "agreement with the main text"),
    Erratum("pre-activation", "z_j = Σ_j w_ij h_j", "z_i", "an index only"),
)
