"""What an algorithm finds on one instance, next to what the theory predicts of such instances."""

from dataclasses import dataclass, field
from functools import cached_property

from fermibose.cavity.channel import PairChannel
from fermibose.cavity.instance import Instance
from fermibose.theory import Array, Predictions, Problem, generalization_loss


@dataclass(frozen=True)
class History:
    """One entry per sweep."""

    M: list[float] = field(default_factory=list)  # mean weight
    q: list[float] = field(default_factory=list)  # self-overlap, (Σ m_i² + v_i)/N
    Q: list[float] = field(default_factory=list)  # overlap of two replicas, Σ m_i²/N
    training_loss: list[float] = field(default_factory=list)  # mean energy of a training pair
    residual: list[float] = field(default_factory=list)  # largest undamped change of m and v

    def generalization_loss(self, problem: Problem) -> list[float]:
        """Mean energy of a new pair after every sweep."""
        return [generalization_loss(problem, M, q) for M, q in zip(self.M, self.q, strict=True)]


@dataclass(frozen=True)
class Estimate(Predictions):
    """Gaussian marginals of the weights of one instance, and how they were reached.

    ``generalization_loss``, ``accuracy`` and the like are those of new data for the instance's own
    M and q, exact for given weights: a new pattern has z = y m M + Δ√q u.
    """

    instance: Instance
    mean: Array  # (N,): m_i
    variance: Array  # (N,): v_i
    training_loss: float  # mean energy of a training pair
    at_eigenvalue: float  # Σ_μ ‖V_μ ∂f_μ‖²/N on the instance; above 1, replica symmetry is unstable
    free_energy: float  # Bethe's: −ln ∫dw e^{−βE(w)} / (βN)
    converged: bool
    iterations: int
    history: History
    diverged: bool = False  # the messages left every bound; the state is the last one before

    @property
    def problem(self) -> Problem:  # type: ignore[override]
        """What the instance was drawn from."""
        return self.instance.problem

    @property
    def M(self) -> float:
        """Mean weight Σ m_i/N; its sign is the instance's choice."""
        return float(self.mean.mean())

    @property
    def Q(self) -> float:
        """Overlap of two replicas, Σ m_i²/N."""
        return float((self.mean**2).mean())

    @property
    def q(self) -> float:
        """Self-overlap ⟨w·w⟩/N = Q + Σ v_i/N."""
        return self.Q + float(self.variance.mean())

    @property
    def residual(self) -> float:
        """Largest undamped change of a mean or variance in the last sweep."""
        return self.history.residual[-1]

    @cached_property
    def test_loss(self) -> float:
        """Mean energy of the instance's own test pairs, over the marginals."""
        test = self.instance.test
        channel = PairChannel(self.problem)
        V = test.field_covariance(self.variance)
        unseen = channel.moments(test.fields(self.mean).T, V, test.same, tilt=False)
        return float(unseen.energy.mean())

    @property
    def verdict(self) -> str:
        """Whether the numbers can be used, in words."""
        sweeps = f"{self.iterations} sweep" + "s" * (self.iterations != 1)
        stability = f"AT = {self.at_eigenvalue:.2f}"
        if self.converged:
            unstable = ": plain sweeps may leave this fixed point" * (self.at_eigenvalue > 1)
            return f"converged in {sweeps}; {stability}{unstable}"
        stopped = (
            f": diverged after {sweeps}"
            if self.diverged
            else f" in {sweeps} (residual {self.residual:.1e})"
        )
        return f"did not converge{stopped}; {stability} in the last sweep"
