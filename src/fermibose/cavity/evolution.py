r"""State evolution: what AMP does sweep by sweep on an instance of very many weights.

After a sweep the means have M = Σm_i/N and Q = Σm_i²/N and the variances V = Σv_i/N; the next
fields are ω = y m M + Δ√Q v, whatever the instance, so the next M, Q and V follow from one step of
the saddle-point equations, undamped. Its fixed points are the saddle points of
:mod:`fermibose.theory`; the trajectory says how AMP gets there.
"""

from fermibose.cavity.checks import number, whole
from fermibose.cavity.estimate import History
from fermibose.cavity.passing import LOOSEST
from fermibose.compute import threads
from fermibose.errors import InputError
from fermibose.theory import Overlaps, Problem, SaddlePoint, saddle_distance, saddle_update


@threads(1)
def state_evolution(
    problem: Problem, *, M: float, Q: float, V: float | None = None, sweeps: int
) -> History:
    """The trajectory of undamped AMP from means with Σm/N = M and Σm²/N = Q.

    V: mean variance Σv/N at the start, that of the prior by default, as in AMP. An uninformed start
    has M = 0 and stays there for ever in this limit: on an instance M starts from a chance value of
    order 1/√N, which is the M to give here. ``training_loss`` stays empty.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"state evolution needs a fermibose.theory.Problem, got {problem!r}")
    if problem.zero_temperature:
        raise InputError("state evolution needs a finite beta, as AMP does")
    if number("M", M) ** 2 > number("Q", Q, above=0):
        raise InputError(f"means have Q > 0 and M² <= Q, got M = {M!r} and Q = {Q!r}")
    whole("sweeps", sweeps, least=0)
    saddle, history = SaddlePoint(problem), History()
    chi = 1 / problem.weight_decay if V is None else problem.beta * number("V", V, above=0)
    state = Overlaps(M, Q, chi)
    for _ in range(sweeps):
        _, conjugate = saddle.evaluate(state)
        floor = problem.weight_decay / LOOSEST - problem.weight_decay
        if conjugate.chi < floor:  # AMP bounds its variances there
            conjugate = type(conjugate)(conjugate.M, conjugate.Q, floor)
        new = saddle_update(problem, state, conjugate)
        history.M.append(new.M)
        history.Q.append(new.Q)
        history.q.append(new.q(problem.beta))
        history.residual.append(saddle_distance(problem, new, state))
        state = new
    return history
