"""Breaks the source in named ways and demands that the tests notice: ``python tests/mutants.py``.

Each mutant replaces one piece of text in a copy of the package and runs the tests that should turn
red. A mutant that survives, or whose text is no longer found, makes the script fail. Arguments
select mutants whose name contains one of them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """One way to break the package."""

    name: str
    file: str  # below src/fermibose
    old: str
    new: str
    tests: str  # what must turn red


ENERGY = "tests/test_energy.py"
RULE = "tests/machine/test_local_rule.py"
TRAINING = "tests/machine/test_training.py"
GRADIENT = "tests/attacks/test_gradient.py"
NAN = "tests/attacks/test_not_a_number.py"
CURVES = "tests/attacks/test_accuracy_curves.py"
CERTIFICATE = "tests/attacks/test_certificate.py"
THEORY = "tests/theory/test_replica.py"
SWEEP_JOBS = "tests/sweep/test_jobs.py"
SWEEP_STORE = "tests/sweep/test_store.py"
SWEEP_ENGINES = "tests/sweep/test_engines.py"
SWEEP_RUNNER = "tests/sweep/test_runner.py"
PAPER = "tests/paper/test_learning.py"
REPORT = "tests/report/test_story.py"
MESSAGES = "tests/cavity/test_messages.py"
REFEREES = "tests/cavity/test_referees.py"
CLI = "tests/test_cli.py"
SUBJECT = "tests/data/test_cli_subject.py"
MUTANTS = [
    Mutant("swap masks", "energy.py", "sigma = d2 * 0 + same", "sigma = 1 - (d2 * 0 + same)", RULE),
    Mutant("sign of the force", "energy.py", "attraction - rep", "attraction + rep", RULE),
    Mutant("no half in the hinge", "energy.py", "(x + root) / 2", "(x + root)", ENERGY),
    Mutant("curvature", "energy.py", "self.softness / 2 *", "self.softness *", ENERGY),
    Mutant("averaged = labelled", "energy.py", '== "labelled":', '!= "":', ENERGY),
    Mutant("averaged: swap counts", "energy.py", "* counts[0]", "* counts[1]", ENERGY),
    Mutant("fermion weight lost", "energy.py", "self.fermion_weight * (1", "1.0 * (1", ENERGY),
    Mutant("factor 2 of the force", "machine/local_rule.py", "*= -2 / (units", "*= -1 / (units", RULE),
    Mutant("factor 2 of D²", "machine/local_rule.py", "d2 *= -2 / units", "d2 *= -1 / units", RULE),
    Mutant("mean over ordered pairs", "machine/local_rule.py", "size * (size - 1) // 2", "size * (size - 1)", RULE),
    Mutant("self-pairs counted", "machine/local_rule.py", "n * (n - 1) // 2", "n * (n + 1) // 2", RULE),
    Mutant("diagonal left in the energy", "machine/local_rule.py", "energies.reshape(-1)[diagonal] = 0", "pass", RULE),
    Mutant("Laplacian without its diagonal", "machine/local_rule.py", "laplacian.reshape(-1)[diagonal] -= laplacian.sum(1)", "pass", RULE),
    Mutant("wrong diagonal of a block", "machine/local_rule.py", "slice(start, None, size + 1)", "slice(0, None, size + 1)", RULE),
    Mutant("wrong second derivatives", "machine/loss.py", "    @once_differentiable", "    #", RULE),
    Mutant("digits lost to a common offset", "machine/loss.py", "pair_force(wide - wide.mean(0),", "pair_force(wide,", RULE),
    Mutant("labels that are no numbers", "machine/local_rule.py", "if labels.is_floating_point() or labels.is_complex():", "if False:", RULE),
    Mutant("slope of (1+tanh)/2", "machine/activations.py", "return grad.mul_(2)", "return grad", RULE),
    Mutant("in-place (1+tanh)/2", "machine/activations.py", "z.mul_(2).sigmoid_()", "z.sigmoid_()", RULE),
    Mutant("activity penalty", "machine/layers.py", "activity / h.numel()", "activity / len(h)", RULE),
    Mutant("bias gradient", "machine/layers.py", "delta.sum(0)", "delta.mean(0)", RULE),
    Mutant("weight decay per layer width", "machine/training.py", "recipe.weight_decay / recipe.hidden[number]", "recipe.weight_decay", TRAINING),
    Mutant("initial width of weights", "machine/layers.py", "self.weight.shape[0] ** -0.5", "self.weight.shape[1] ** -0.5", TRAINING),
    Mutant("checkpoint forgets the moments", "machine/checkpoint.py", "optimiser.restore(self._moments)", "pass", TRAINING),
    Mutant("checkpoint forgets the generator", "machine/checkpoint.py", 'generator.set_state(tensors["generator"])', "pass", TRAINING),
    Mutant("checkpoint of another training", "machine/checkpoint.py", '!= self.fingerprint', '== ""', TRAINING),
    Mutant("dead inputs do not decay", "machine/dead_inputs.py", "yield self.resting", "yield from ()", TRAINING),
    Mutant("live weights are not joined", "machine/dead_inputs.py", "layer.weight.index_copy_(0, self.live, self.learner.weight)", "pass", TRAINING),
    Mutant("a layer trains the one below", "machine/training.py", "self.layer = net.local_layers[number]", "self.layer = net.local_layers[max(number - 1, 0)]", TRAINING),
    Mutant("an output for every stray label", "machine/examples.py", "if classes > max(least, each * found):", "if False:", TRAINING + "::test_a_stray_label_is_blamed_at_once"),
    Mutant("no class may be missing", "machine/examples.py", "if classes > max(least, each * found):", "if classes > found:", TRAINING),
    Mutant("reversed data refused by torch", "machine/examples.py", 'np.ascontiguousarray(_as_array("x", x, np.float32))', '_as_array("x", x, np.float32)', TRAINING),
    Mutant("test inputs of another width", "machine/examples.py", "if inputs.shape[1] != features:", "if False:", TRAINING),
    Mutant("scaling cannot be turned off", "estimator/base.py", 'if scaling == "none" or (', "if (", "tests/test_estimator.py::test_one_entry_outside_the_unit_range_rescales_unless_told_otherwise"),
    Mutant("scaling cannot be asked for", "estimator/base.py", '(scaling == "auto" and within(low.min(), high.max()))', "within(low.min(), high.max())", "tests/test_estimator.py::test_one_entry_outside_the_unit_range_rescales_unless_told_otherwise"),
    Mutant("outputs that skip a class", "machine/examples.py", "    if missing:", "    if False:", TRAINING + "::test_baselines_with_a_fit_for_each_class_need_examples_of_all"),
    Mutant("denormals stay flushed", "machine/compute.py", "torch.set_flush_denormal(flushed_before)", "pass", TRAINING),
    Mutant("Adam without weight decay", "machine/adam.py", "weight_decay=self.weight_decay", "weight_decay=0.0", "tests/machine/test_adam.py"),
    Mutant("Adam counts twice", "machine/adam.py", "count += 1", "count += 2", "tests/machine/test_adam.py"),
    Mutant("cross-entropy gradient", "machine/readout.py", "residual.div_(len(y))", "residual.div_(2 * len(y))", "tests/machine/test_readout.py"),
    Mutant("ridge scale", "machine/readout.py", "n * ridge * torch.eye(units)", "ridge * torch.eye(units)", "tests/machine/test_readout.py"),
    Mutant("ridge intercept", "machine/readout.py", "t_mean - h_mean @ weights", "t_mean", "tests/machine/test_readout.py"),
    Mutant("shift fills with ones", "machine/pairing.py", "(p, p, p, p))", '(p, p, p, p), "constant", 1.0)', "tests/machine/test_pairing.py"),
    Mutant("noise clips inputs of any range", "machine/examples.py", "if not within(low, high, bounds):", "if False:", "tests/machine/test_pairing.py"),
    Mutant("rounding is another range", "machine/examples.py", "ROUNDING = 1e-5", "ROUNDING = 0.0", TRAINING),
    Mutant("bytes without a word", "machine/examples.py", "if not within(low, high):", "if False:", TRAINING),
    Mutant("self pairs by class", "machine/pairing.py", "torch.arange(len(x)).repeat(2)", "y.repeat(2)", "tests/machine/test_pairing.py"),
    Mutant("model checksum ignored", "machine/network.py", 'if _sha256(weights) != config.pop("sha256", None):', 'if config.pop("sha256", None) is None:', "tests/machine/test_network.py"),
    Mutant("rescaling lost", "machine/network.py", "h = (h - self.offset) * self.gain", "h = h * self.gain", "tests/machine/test_network.py"),
    Mutant("attack: descends", "attacks/gradient.py", "ball.project(move.add_(point))", "ball.project(point - move)", GRADIENT),
    Mutant("attack: no ℓ∞ projection", "attacks/balls.py", "return torch.clamp(point, self.lower, self.upper, out=point)", "return point", GRADIENT),
    Mutant("attack: ℓ∞ ball ignores the bounds", "attacks/balls.py", "lower = (centre - threat.epsilon).clamp_(min=low)", "lower = centre - threat.epsilon", GRADIENT),
    Mutant("attack: no ℓ2 shrinking", "attacks/balls.py", ".clamp(max=1)", ".clamp(min=1, max=1)", GRADIENT),
    Mutant("attack: no ℓ2 clipping", "attacks/balls.py", "out=point).clamp_(*self.bounds)", "out=point)", GRADIENT),
    Mutant("attack: ℓ2 direction not normalised", "attacks/balls.py", "direction: Tensor = flat / length", "direction: Tensor = flat", GRADIENT),
    Mutant("attack: wrong norm", "attacks/balls.py", 'if threat.norm == "l2":', 'if threat.norm == "":', GRADIENT),
    Mutant("attack: last restart instead of worst", "attacks/gradient.py", "rows = rows[robust[rows]]", "rows = rows", GRADIENT),
    Mutant("attack: misclassified images attacked", "attacks/gradient.py", "victim.x.clone(), victim.correct.clone()", "victim.x.clone(), torch.ones_like(victim.correct)", GRADIENT),
    Mutant("attack: only the last point tried", "attacks/gradient.py", "if ascent.stop_when_fooled and fooled.any():", "if False:", GRADIENT),
    Mutant("attack: random start ignored", "attacks/gradient.py", "climbers.ball.random(generator) if ascent.random_start else x", "x", GRADIENT),
    Mutant("attack: step without ε", "attacks/gradient.py", "ascent.step_size * threat.epsilon", "ascent.step_size", GRADIENT),
    Mutant("attack: infinite steps", "attacks/gradient.py", "0 < self.step_size <= LONGEST_STEP", "0 < self.step_size", GRADIENT),
    Mutant("attack: steps that overflow", "attacks/gradient.py", "LONGEST_STEP = 1000.0", "LONGEST_STEP = 1e6", GRADIENT),
    Mutant("attack: sign of the margin", "attacks/losses.py", "rivals.amax(1) - logits.gather(1, own)[:, 0]", "logits.gather(1, own)[:, 0] - rivals.amax(1)", GRADIENT),
    Mutant("attack: mean-squared loss without tanh", "attacks/losses.py", "logits.tanh()", "logits", GRADIENT),
    Mutant("attack: float64 ignored", "attacks/victim.py", "if dtype is not None and dtype != own.dtype:", "if False:", GRADIENT),
    Mutant("attack: model left in evaluation mode", "attacks/victim.py", "module.training = True", "pass", GRADIENT),
    Mutant("attack: bounds not checked", "attacks/threat.py", "if lowest < self.bounds[0] or highest > self.bounds[1]:", "if False:", "tests/attacks/test_threat.py"),
    Mutant("attack: integer images accepted", "attacks/threat.py", "if not images.is_floating_point():", "if False:", "tests/attacks/test_threat.py"),
    Mutant("attack: one-step curve not clipped", "attacks/strengths.py", "alpha=epsilon).clamp_(*threat.bounds)", "alpha=epsilon)", CURVES),
    Mutant("attack: curve counts the misclassified", "attacks/strengths.py", "victim.correct.repeat(", "torch.ones_like(victim.correct).repeat(", CURVES),
    Mutant("attack: PGD of curves on one loss", "attacks/strengths.py", "losses = PGD_LOSSES if loss is None", 'losses = "cross_entropy" if loss is None', CURVES),
    Mutant("attack: PGD of curves without restarts", "attacks/strengths.py", "steps=steps, restarts=restarts)", "steps=steps)", CURVES),
    Mutant("attack: PGD of curves with its own step", "attacks/strengths.py", "steps=steps, restarts=restarts)", "steps=steps, restarts=restarts, step_size=2 / steps)", CURVES),
    Mutant("cli: PGD of the demo with another seed", "cli/demo.py", 'attack="pgd", seed=seed', 'attack="pgd"', CURVES),
    Mutant("attack: area as a sum", "attacks/curves.py", "100 * float(trapezoid(accuracy, curve.epsilons))", "float(accuracy.sum())", CURVES),
    Mutant("attack: worst case not accumulated", "attacks/curves.py", "np.logical_and.accumulate(self.robust)", "self.robust", CURVES),
    Mutant("attack: band of the population", "attacks/curves.py", "ddof=1", "ddof=0", CURVES),
    Mutant("attack: noise not clipped", "attacks/methods.py", ".add_(x).clamp_(*threat.bounds)", ".add_(x)", CURVES),
    Mutant("attack: variance for deviation", "attacks/methods.py", "noise.mul_(threat.epsilon)", "noise.mul_(threat.epsilon**2)", CURVES),
    Mutant("attack: dual norms exchanged", "attacks/certificate.py", 'self.dual = 1 if norm == "linf" else 2', 'self.dual = 2 if norm == "linf" else 1', CERTIFICATE),
    Mutant("attack: slopes as if constant", "attacks/certificate.py", "(peak - least) / 2)", "0 * peak)", CERTIFICATE),
    Mutant("attack: interval map without |W|", "attacks/certificate.py", "self.radius @ weight.abs()", "self.radius @ weight", CERTIFICATE),
    Mutant("attack: interval product incomplete", "attacks/certificate.py", " + self.radius * largest", "", CERTIFICATE),
    Mutant("attack: rescaling not certified", "attacks/certificate.py", "largest = largest * self.input_scale.abs()", "pass", CERTIFICATE),
    Mutant("attack: ε not in units of the bounds", "attacks/auto.py", "eps = threat.epsilon / (frame.high - frame.low)", "eps = threat.epsilon", "tests/attacks/test_auto.py"),
    Mutant("attack: AutoAttack outside its ball", "attacks/auto.py", "ball_around(victim.x[rows], threat).project(frame.leave(found))", "frame.leave(found)", "tests/attacks/test_auto.py"),
    Mutant("attack: AutoAttack framed by the bounds", "attacks/frame.py", "(max(low, reach[0]), min(high, reach[1])))", "threat.bounds)", "tests/attacks/test_auto.py"),
    Mutant("attack: coarse float32 unmentioned", "attacks/auto.py", ", *frame.flags(threat)]", "]", "tests/attacks/test_auto.py"),
    Mutant("attack: NaN read as class 0", "attacks/victim.py", "(logits.argmax(1) != y) | undefined(logits)", "logits.argmax(1) != y", NAN),
    Mutant("attack: infinite logits refused", "attacks/victim.py", "logits.isnan().any(1)", "~logits.isfinite().all(1)", NAN),
    Mutant("attack: NaN unmentioned", "attacks/victim.py", "counts as fooled\": self.undefined", "counts as fooled\": 0", NAN),
    Mutant("attack: NaN on the way not counted", "attacks/gradient.py", "victim.undefined += found.undefined", "pass", NAN),
    Mutant("attack: NaN met by AutoAttack unmentioned", "attacks/auto.py", "victim.undefined += frame.undefined", "pass", NAN),
    Mutant("attack: AutoAttack at points that are none", "attacks/auto.py", "torch.where(found.isfinite(), found, entered)", "found", NAN),
    Mutant("attack: audit without PGD's flags", "attacks/auditing.py", "for flag in found.flags if", "for flag in found.flags if name != 'PGD' and", NAN),
    Mutant("attack: flags dropped", "attacks/auto.py", "flags.append(text)", "pass", "tests/attacks/test_auto.py"),
    Mutant("attack: training stops when fooled", "attacks/adversary.py", "stop_when_fooled=False", "stop_when_fooled=True", "tests/attacks/test_baselines.py"),
    Mutant("attack: rescaling never suspicious", "attacks/checks.py", "gain = plain - min(found)", "gain = 0.0", "tests/attacks/test_audit.py"),
    Mutant("attack: transfer never suspicious", "attacks/checks.py", "missed = float((fooled & probe.withstood).double().mean())", "missed = 0.0", "tests/attacks/test_audit.py"),
    Mutant("attack: a rival in training mode", "attacks/victim.py", "    model.eval()  # dropout", "    # dropout", "tests/attacks/test_audit.py"),
    Mutant("attack: a rival converted in place", "attacks/victim.py", "copy.deepcopy(model).to(dtype)", "model.to(dtype)", "tests/attacks/test_audit.py"),
    Mutant("attack: chance not judged", "attacks/checks.py", "found.by_chance > found.problems / 2", "False", "tests/attacks/test_audit.py"),
    Mutant("attack: chance excuses failure", "attacks/checks.py", "if passed and found.by_chance", "if found.by_chance", "tests/attacks/test_audit.py"),
    Mutant("attack: random points miscounted", "attacks/binarisation.py", "by_chance += int(misclassified(logits, label).any())", "by_chance += int(misclassified(logits, label).all())", "tests/attacks/test_audit.py"),
    Mutant("attack: what is inconclusive unmentioned", "attacks/auditing.py", "; inconclusive: {unclear}\" if unclear", "\" if unclear", "tests/attacks/test_audit.py"),
    Mutant("theory: decay in f", "theory/replica.py", "overlaps.q(beta) / 2", "overlaps.q(beta)", "tests/theory/test_thermodynamics.py"),
    Mutant("theory: sign of Q̂", "theory/replica.py", "Q=-alpha * delta**2", "Q=alpha * delta**2", THEORY),
    Mutant("theory: factor 2 of χ", "theory/replica.py", "/ (2 * chi)", "/ chi", THEORY),
    Mutant("theory: √2 of the label force", "theory/replica.py", "return SQRT2 * self._sum([boson", "return self._sum([boson", THEORY),
    Mutant("theory: ρ swapped", "theory/replica.py", "np.array([problem.rho, 1 - problem.rho])", "np.array([1 - problem.rho, problem.rho])", "tests/theory/test_solver.py"),
    Mutant("theory: second kernel", "theory/channel.py", "g * (d**2 - 1)", "g * d**2", "tests/theory/test_channel.py"),
    Mutant("theory: both members alike", "theory/grid.py", "windows[rows - 1 :: -1]", "windows[rows - 1 :]", "tests/theory/test_channel.py"),
    Mutant("theory: error of no other grid", "theory/refinement.py", "_SECOND = 1.5", "_SECOND = 1.0", "tests/theory/test_solver.py"),
    Mutant("theory: points lost in silence", "theory/drawing.py", "left out)\" if count else", "left out)\" if False else", "tests/theory/test_curves.py"),
    Mutant("theory: AT with Δ²", "theory/stability.py", "problem.delta**4", "problem.delta**2", "tests/theory/test_stability.py"),
    Mutant("theory: rare jumps overlooked", "theory/stability.py", "_GROWTH = 1e-6", "_GROWTH = 1e-2", "tests/theory/test_stability.py"),
    Mutant("theory: jumps of the ridge squared", "theory/moreau.py", "(2 * pull_r[:, 0]) ** 3", "(2 * pull_r[:, 0]) ** 2", "tests/theory/test_stability.py"),
    Mutant("theory: jumps off the axes lost", "theory/moreau.py", "cell[jump * c <= _JUMP * step] = 0", "cell[:] = 0", "tests/theory/test_stability.py"),
    Mutant("theory: a critical point at infinity", "theory/critical.py", "if math.isinf(last[0].at_eigenvalue):", "if False:", "tests/theory/test_stability.py"),
    Mutant("theory: loss blind to a steep φ", "theory/observables.py", "math.sqrt(problem.softness))) / problem.steepness", "math.sqrt(problem.softness)))", "tests/theory/test_observables.py"),
    Mutant("theory: lattice blind to a steep φ", "theory/lattice.py", "steep = problem.steepness", "steep = 1.0", "tests/theory/test_solver.py"),
    Mutant("theory: steepest place missed", "theory/activation.py", "if steepest < 1.001 * before:", "if True:", "tests/theory/test_problem.py"),
    Mutant("theory: functions not tried", "theory/activation.py", "    _try(name, function)\n", "", "tests/theory/test_problem.py"),
    Mutant("theory: Q below M²", "theory/checks.py", "if start.Q < start.M**2:", "if False:", "tests/theory/test_problem.py"),
    Mutant("theory: an interval of one end", "theory/checks.py", "if ends.size != 2 or", "if", "tests/theory/test_stability.py"),
    Mutant("theory: a map of one row", "theory/diagram.py", "self.y_values.size) == 1:", "self.y_values.size) == 0:", "tests/theory/test_curves.py"),
    Mutant("theory: an empty diagram", "theory/diagram.py", "if len(diagram.failures) == columns.size", "if False and columns.size", "tests/theory/test_curves.py"),
    Mutant("theory: AT of a coarse lattice", "theory/stability.py", "if error <= _ENOUGH * at or", "if True or", "tests/theory/test_brute_force.py"),
    Mutant("theory: error of AT too small", "theory/stability.py", "abs(at - scale * thin", "1e-3 * abs(at - scale * thin", "tests/theory/test_stability.py"),
    Mutant("theory: CSV written in place", "theory/quantities.py", "with replacing(path) as draft, draft.open(", "draft = Path(path)\n    with draft.open(", "tests/theory/test_curves.py"),
    Mutant("theory: entropy upside down", "theory/solution.py", "(self.energy - self.free_energy)", "(self.free_energy - self.energy)", "tests/theory/test_thermodynamics.py"),
    Mutant("theory: energy of decay doubled", "theory/solution.py", "self.problem.weight_decay * self.q / 2", "self.problem.weight_decay * self.q", "tests/theory/test_thermodynamics.py"),
    Mutant("theory: attacks of any strength", "theory/observables.py", "if not np.all(strength >= 0):", "if False:", "tests/theory/test_observables.py"),
    Mutant("theory: refined in vain", "theory/refinement.py", "_SURE = 2.0", "_SURE = 1e9", "tests/theory/test_solver.py"),
    Mutant("theory: response of another lattice", "theory/saddle.py", "            self._response = None  # it was on other nodes\n", "", "tests/theory/test_solver.py"),
    Mutant("theory: finished rows lost", "cli/theory.py", "        diagram.save_csv(path)\n", "", "tests/theory/test_cli_theory.py"),
    Mutant("theory: any tolerance", "theory/checks.py", "not 0 < tol < below", "False", "tests/theory/test_problem.py"),
    Mutant("theory: accuracy off by √2", "theory/observables.py", "return problem.m * abs(M) / math.sqrt(q)", "return problem.m * abs(M) / math.sqrt(2 * q)", "tests/theory/test_observables.py"),
    Mutant("sweep: keys in any order", "sweep/values.py", "sort_keys=True", "sort_keys=False", SWEEP_JOBS),
    Mutant("sweep: infinities as NaN", "sweep/values.py", "repr(value)}", '"nan"}', SWEEP_JOBS),
    Mutant("sweep: seed not in the key", "sweep/jobs.py", '"seed": self.seed}\n        return', '"seed": 0}\n        return', SWEEP_JOBS),
    Mutant("sweep: data not in the key", "sweep/jobs.py", 'identity | {"data": self.data}', "identity", SWEEP_JOBS),
    Mutant("sweep: source not in the key", "sweep/jobs.py", '"source": code.source', '"source": ""', SWEEP_JOBS),
    Mutant("sweep: local functions accepted", "sweep/jobs.py", "if found is not function:", "if found is None:", SWEEP_JOBS),
    Mutant("sweep: a result is overwritten", "sweep/store.py", "if not has_result(connection, job.key):", "if True:", SWEEP_STORE),
    Mutant("sweep: a failure stays", "sweep/rows.py", "return row is not None and row.result is not None", "return row is not None", SWEEP_STORE),
    Mutant("sweep: failures count as finished", "sweep/store.py", "for row in self.rows() if row.result is not None}", "for row in self.rows()}", SWEEP_RUNNER),
    Mutant("sweep: truncation overlooked", "sweep/store.py", "st_size % page:", "st_size % 1:", SWEEP_STORE),
    Mutant("sweep: other databases accepted", "sweep/store.py", "if application != _APPLICATION:", "if False:", SWEEP_STORE),
    Mutant("sweep: later formats accepted", "sweep/store.py", "if schema != _SCHEMA:", "if False:", SWEEP_STORE),
    Mutant("sweep: digest of keys only", "sweep/store.py", "SELECT key, result FROM results ORDER", "SELECT key FROM results ORDER", SWEEP_STORE),
    Mutant("sweep: a full disk unexplained", "sweep/store.py", "& 0xFF", "& 0x00", SWEEP_STORE),
    Mutant("sweep: half a result stored", "sweep/runner.py", "if interrupts.requested():", "if False:", SWEEP_RUNNER),
    Mutant("sweep: Ctrl-C cuts a row", "sweep/interrupts.py", "        self._held = True\n        yield", "        yield", SWEEP_RUNNER),
    Mutant("sweep: no claims", "sweep/claims.py", "if not self._lock(1, _offset(key)):", "if False:", SWEEP_RUNNER),
    Mutant("sweep: others' results overlooked", "sweep/claims.py", "if self.store.has_result(key):", "if False:", SWEEP_RUNNER),
    Mutant("sweep: claims left behind", "sweep/claims.py", "if alone:", "if False:", SWEEP_STORE),
    Mutant("sweep: no second attempt", "sweep/local.py", "_ATTEMPTS = 2", "_ATTEMPTS = 1", SWEEP_ENGINES),
    Mutant("sweep: endless attempts", "sweep/local.py", "_ATTEMPTS = 2", "_ATTEMPTS = 5", SWEEP_ENGINES),
    Mutant("sweep: an idle worker's death", "sweep/local.py", "self.busy.pop(worker, None)", "self.busy.pop(worker)", SWEEP_ENGINES),
    Mutant("sweep: any scheme is Dask's", "sweep/engines.py", "(tcp|tls|ucx|wss?)", "([a-z]+)", SWEEP_ENGINES),
    Mutant("sweep: a half-made client", "sweep/cluster.py", "half_made.callback(client.close)", "pass", "tests/sweep/test_cluster.py"),
    Mutant("sweep: safe without a store", "sweep/store.py", "and not os.path.exists(path)", "and False", SWEEP_STORE),
    Mutant("sweep: orphans work on", "sweep/worker.py", "os._exit(0)", "pass", SWEEP_ENGINES),
    Mutant("sweep: prints among the answers", "sweep/worker.py", "os.dup2(2, 1)", "pass", SWEEP_ENGINES),
    Mutant("sweep: threads in this process", "sweep/engines.py", "with one_thread():", "if True:", SWEEP_ENGINES),
    Mutant("sweep: threads not restored", "sweep/work.py", "with threadpool_limits(None):", "if True:", SWEEP_ENGINES),
    Mutant("sweep: other code accepted", "sweep/work.py", 'if code_of(function) != Code(*call["code"]):', "if False:", SWEEP_ENGINES),
    Mutant("sweep: exit ends the sweep", "sweep/work.py", "except BaseException as problem:", "except Exception as problem:", SWEEP_ENGINES),
    Mutant("sweep: a worker is killed as it ends", "sweep/local.py", "self.process.wait(patience)", "pass", SWEEP_ENGINES),
    Mutant("sweep: threads on the cluster", "sweep/cluster.py", "    use_one_thread()\n", "", "tests/sweep/test_cluster.py"),
    Mutant("sweep: a lost cluster unexplained", "sweep/cluster.py", "except (OSError, CancelledError, asyncio.CancelledError) as error:", "except ZeroDivisionError as error:", "tests/sweep/test_cluster.py"),
    Mutant("progress: late, and no time left", "progress.py", "if left > 0 else told", "if left > -1e9 else told", SWEEP_RUNNER),
    Mutant("progress: rate of what is left", "progress.py", "(total - done) / rate", "total / rate", SWEEP_RUNNER),
    Mutant("paper: recorded distance of its own pairs", "paper/learning.py", '"recorded_boson_distance": share * mean', '"recorded_boson_distance": share * boson', PAPER),
    Mutant("paper: shares exchanged", "paper/learning.py", '"recorded_fermion_distance": (1 - share)', '"recorded_fermion_distance": share', PAPER),
    Mutant("paper: components not centred", "paper/learning.py", "h - h.mean(0)", "h", PAPER),
    Mutant("paper: deviations for variances", "paper/learning.py", "s.square().numpy()", "s.numpy()", PAPER),
    Mutant("paper: linear imbalance", "paper/images.py", "imbalance ** -np", "(1 / imbalance) * np", PAPER),
    Mutant("paper: the top is its own second peak", "paper/marks.py", "return float(curve[other] -", "return float(curve[top] -", "tests/paper/test_marks.py"),
    Mutant("paper: noise makes peaks", "paper/marks.py", "if dip > 3 * noise", "if dip > 0 * noise", "tests/paper/test_marks.py"),
    Mutant("paper: other images unmentioned", "paper/drawing.py", "() if scale.published_split else", "() if True else", "tests/paper/test_reproduce.py"),
    Mutant("paper: one point speaks for a curve", "paper/fig2.py", "2 * len(means) < len(groups)", "not means", "tests/paper/test_theory_figures.py"),
    Mutant("paper: at least means at most", "paper/verdict.py", '"at least": -off', '"at least": off', "tests/paper/test_verdict.py"),
    Mutant("paper: failures pass", "cli/reproduce.py", "raise typer.Exit(1)", "pass", "tests/paper/test_reproduce.py"),
    Mutant("paper: others' verdicts lost", "cli/reproduce.py", "for v in _read(path)", "for v in []", "tests/paper/test_reproduce.py"),
    Mutant("paper: scales mixed", "cli/reproduce.py", '"figure": name, "scale": scale.name}', '"figure": name}', "tests/paper/test_reproduce.py"),
    Mutant("paper: deviation for error", "paper/series.py", "spread / len(array) ** 0.5", "spread", "tests/paper/test_reproduce.py"),
    Mutant("paper: a run counts twice", "paper/series.py", "{})[row.seed] =", "{})[id(row)] =", "tests/paper/test_reproduce.py"),
    Mutant("paper: settings mixed", "paper/beyond.py", "== usual | changed", "!= changed", "tests/paper/test_reproduce.py"),
    Mutant("cli: mnist5k for every model", "cli/subject.py", "elif trained:", "elif not net:", SUBJECT),
    Mutant("cli: trained images not announced", "cli/subject.py", '("mnist", "mnist5k")', '("mnist5k", "mnist")', SUBJECT),
    Mutant("cli: other files of the same name", "cli/subject.py", "checksum == trained", "checksum != trained", SUBJECT),
    Mutant("cli: subsets forgotten", "cli/train.py", "origin(dataset, data, folder, **counts)", "origin(dataset, data, folder)", SUBJECT),
    Mutant("cli: relative folders", "cli/subject.py", "folder.expanduser().resolve()", "folder.expanduser()", SUBJECT),
    Mutant("cli: classes by position", "cli/subject.py", "if classes != labels and", "if False and", SUBJECT),
    Mutant("cli: test images of the training forgotten", "cli/subject.py", "elif data is None and", "elif False and", SUBJECT),
    Mutant("cli: test images asked for ignored", "cli/subject.py", " and test_per_class is None:", ":", SUBJECT),
    Mutant("cli: a damaged record believed", "cli/subject.py", "    if not sound:", "    if False:", SUBJECT),
    Mutant("cli: idle options of train", "cli/train.py", "    opt.check_idle(readout, pairing, ridge=ridge, noise=noise, shift=shift)\n", "", CLI + "::test_errors_are_one_line_for_people"),
    Mutant("cli: the noise of pairs lost", "cli/train.py", "Noise() if noise is None else Noise(noise)", "Noise()", CLI + "::test_noise_shift_and_ridge_reach_the_machine"),
    Mutant("cli: the shift of pairs lost", "cli/train.py", "Shift.pixels if shift is None else shift", "Shift.pixels", CLI + "::test_noise_shift_and_ridge_reach_the_machine"),
    Mutant("cli: the ridge lost", "cli/train.py", "Recipe.ridge if ridge is None else ridge", "Recipe.ridge", CLI + "::test_noise_shift_and_ridge_reach_the_machine"),
    Mutant("cli: a trial folder left behind", "cli/options.py", "path.rmdir()", "pass", CLI),
    Mutant("cli: writing not tried", "cli/options.py", "with TemporaryFile(dir=folder):", "with suppress():", CLI),
    Mutant("cli: markup in paths", "cli/options.py", "console.print(text, markup=False,", "console.print(text,", CLI),
    Mutant("cli: bp drawn before its memory", "cli/cavity.py", 'if method == "bp" and n > 0:', "if False:", "tests/cavity/test_cli_cavity.py"),
    Mutant("cli: no verdict on descent", "cavity/ground.py", "if self.converged else \"did not converge: the gradient", "if True else \"did not converge: the gradient", "tests/cavity/test_cli_cavity.py"),
    Mutant("cavity: no Onsager term", "cavity/amp.py", "products.fields(old_m) - (V @", "products.fields(old_m) - 0 * (V @", MESSAGES),
    Mutant("cavity: A·m dropped", "cavity/amp.py", "products.pull(pair.f) + A * old_m", "products.pull(pair.f)", MESSAGES),
    Mutant("cavity: receiver kept in ω", "cavity/bp.py", "(omega[:, None] - mean)", "(omega[:, None] - 0 * mean)", MESSAGES),
    Mutant("cavity: receiver kept in V", "cavity/bp.py", "(V[:, None] - spread)", "(V[:, None] - 0 * spread)", MESSAGES),
    Mutant("cavity: receiver kept in B", "cavity/bp.py", "(v * (whole_B - B)).ravel()", "(v * (whole_B - 0 * B)).ravel()", MESSAGES),
    Mutant("cavity: receiver kept in A", "cavity/bp.py", "v = variances(self.problem, whole_A - A)", "v = variances(self.problem, whole_A + 0 * A)", MESSAGES),
    Mutant("cavity: damped change judged", "cavity/passing.py", "if last.change <= tol", "if last.change * (1 - damping) <= tol", MESSAGES),
    Mutant("cavity: no work in the free energy", "cavity/amp.py", "- pair.log_z.sum() - work)", "- pair.log_z.sum())", "tests/cavity/test_free_energy.py"),
    Mutant("cavity: messages counted twice", "cavity/bp.py", "- (pairs * weights - messages)", "- 0 * (pairs * weights - messages)", "tests/cavity/test_free_energy.py"),
    Mutant("cavity: chains aligned by nothing", "cavity/sampling.py", "if flips else w", "if False else w", REFEREES),
    Mutant("cavity: states flipped that are no mirror images", "cavity/sampling.py", "if flips else w", "if True else w", REFEREES),
    Mutant("cli: Ctrl-C without a word", "cli/__init__.py", 'Console(stderr=True).print("interrupted")', "pass", "tests/cavity/test_cli_cavity.py"),
    Mutant("cavity: acceleration never used", "cavity/passing.py", "if not self.damping or self.turn <= TURN", "if True", MESSAGES),
    Mutant("cavity: undamped sweeps accelerated", "cavity/passing.py", "if not self.damping or self.turn <= TURN", "if self.turn <= TURN", MESSAGES),
    Mutant("cavity: one turn of acceleration only", "cavity/passing.py", "and change > CLOSE", "and change > 1e9", MESSAGES),
    Mutant("cavity: acceleration given up when close", "cavity/passing.py", "and change > CLOSE", "and change > 0", MESSAGES),
    Mutant("cavity: negative variances swept", "cavity/passing.py", "if self.messages.allowed(proposal)", "if True", MESSAGES),
    Mutant("cavity: V⁻¹ missing in ∂f", "cavity/channel.py", "df = precision @ covariance @ precision - precision", "df = precision @ covariance @ precision", "tests/cavity/test_pair_channel.py"),
    Mutant("cavity: second moment for covariance", "cavity/channel.py", "covariance = second - mean[:, :, None] * mean[:, None, :]", "covariance = second", "tests/cavity/test_pair_channel.py"),
    Mutant("cavity: windows too small", "cavity/channel.py", "_DEPTH = 21.0", "_DEPTH = 6.0", "tests/cavity/test_pair_channel.py"),
    Mutant("cavity: steps blind to a steep φ", "cavity/lattice.py", "problem.steepness", "1.0", "tests/cavity/test_pair_channel.py"),
    Mutant("theory: ε_g of no weights", "theory/observables.py", "return (1 - problem.rho) * float(problem.fermion_energy", "return problem.rho * float(problem.fermion_energy", REFEREES),
    Mutant("cavity: noise Δ/N", "cavity/instance.py", "problem.delta / math.sqrt(n)", "problem.delta / n", "tests/cavity/test_instance.py"),
    Mutant("cavity: force on the second input", "cavity/landscape.py", "-push * slope[1]", "push * slope[1]", REFEREES),
    Mutant("cavity: exchange upside down", "cavity/sampling.py", "(self.E[hot + 1] - self.E[hot])", "(self.E[hot] - self.E[hot + 1])", REFEREES),
    Mutant("cavity: trajectories always accepted", "cavity/sampling.py", "yes = rng.random(betas.size) < np.exp(np.minimum(-loss, 0))", "yes = rng.random(betas.size) < 2", REFEREES),
    Mutant("paper: covariance left out of the joint test", "paper/agreement.py", "np.linalg.solve(spread, off)", "(off / np.diag(spread))", "tests/paper/test_agreement.py"),
    Mutant("paper: degrees of freedom", "paper/agreement.py", "(n - k) / (k * (n - 1))", "1 / k", "tests/paper/test_agreement.py"),
    Mutant("paper: step minus many steps", "paper/fig5.py", "step.mean[i] - many.mean[j]", "many.mean[j] - step.mean[i]", "tests/paper/test_reproduce.py"),
    Mutant("paper: MNIST's folder for other data", "paper/scale.py", "return self.folder if (Path(self.folder) / dataset).is_dir() else None", "return self.folder", "tests/paper/test_reproduce.py"),
    Mutant("data: any full set is Fashion-MNIST", "data/dataset.py", "content_digest(*raw) != SHA256[name]", "name == 'mnist' and content_digest(*raw) != SHA256[name]", "tests/data/test_dataset.py"),
    Mutant("data: subfolder of the option ignored", "data/dataset.py", "root / name if (root / name).is_dir() else root", "root", "tests/data/test_dataset.py"),
    Mutant("sweep: bytes that are no text pass", "sweep/rows.py", '"".join(map(str, found)).encode()', "pass", SWEEP_STORE),
    Mutant("sweep: damage unnoticed", "sweep/rows.py", '"result": None, "damaged": True}', '"result": None}', SWEEP_STORE),
    Mutant("sweep: damaged parameters stay", "sweep/rows.py", "params=row.params or dict(job.params), ", "", SWEEP_STORE),
    Mutant("sweep: a reader makes a store", "sweep/store.py", "if empty and not create:", "if False:", SWEEP_STORE),
    Mutant("sweep: a reader makes a file", "sweep/store.py", "if not create and not self.path.exists():", "if False:", SWEEP_STORE),
    Mutant("cli: markup in the folder of figures", "cli/reproduce.py", 'say(f"written to', 'console.print(f"written to', "tests/paper/test_reproduce.py"),
    Mutant("cli: markup in claims", "cli/reproduce.py", 'claim = escape(f"{v.figure}  {v.claim}")', 'claim = f"{v.figure}  {v.claim}"', "tests/paper/test_reproduce.py"),
    Mutant("cli: damage computed again without a word", "cli/reproduce.py", 'print_runs("damaged", ', 'str(', "tests/paper/test_reproduce.py"),
    Mutant("cli: figures written nowhere after the work", "cli/reproduce.py", "    check_folder(output)\n", "", "tests/paper/test_reproduce.py"),
    Mutant("cli: report written nowhere after the work", "cli/report.py", "    check_file(output)\n", "", REPORT),
    Mutant("cli: report makes a store", "cli/report.py", "Store(store, create=False)", "Store(store)", REPORT),
    Mutant("report: damage unmentioned", "report/story.py", "for row in rows if row.damaged}", "for row in []}", REPORT),
    Mutant("report: one figure's data end it all", "report/story.py", "except (FermiboseError, OSError) as error:", "except ZeroDivisionError as error:", REPORT),
    Mutant("report: what is unknown called missing", "report/story.py", "dict.fromkeys(contents.unknown, ", "dict.fromkeys((), ", REPORT),
    Mutant("report: a download for every figure", "paper/scale.py", "self.lost[which] = error", "pass", REPORT),
    Mutant("report: a chapter about shared runs", "report/story.py", "if 2 * len(rows) < len(jobs):", "if not rows:", REPORT),
    Mutant("report: half a chapter passes for whole", "report/story.py", "[] if chapter.whole else", "[] if True else", REPORT),
    Mutant("report: rows beside a phone's screen", "report/page.html.j2", '{% if block.stack %} class="stack"{% endif %}', "", REPORT),
    Mutant("report: cells of a phone without a name", "report/page.html.j2", "table.stack and k > table.title", "false", "tests/report/test_page.py"),
    Mutant("report: bounds are no numbers", "report/page.py", "^([≤≥] )?", "^", "tests/report/test_page.py"),
    Mutant("report: shipped versions unmentioned", "report/story.py", 'results.get("versions")', 'results.get("")', REPORT),
    Mutant("cavity: divergence without its AT", "cavity/estimate.py", "{stopped}; {stability} in", "{stopped}; in", "tests/cavity/test_bad_inputs.py"),
    Mutant("cavity: remedies of lattices exchanged", "cavity/lattice.py", "np.prod(reach / _REACH) > np", "np.prod(reach / _REACH) < np", "tests/cavity/test_bad_inputs.py"),
    Mutant("cavity: reach alone judged", "cavity/lattice.py", "np.prod(reach / _REACH) > np.prod(_STEP / steps)", "np.prod(reach / _REACH) > 1", "tests/cavity/test_bad_inputs.py"),
    Mutant("cavity: no verdict on chains", "cavity/walk.py", "if self.converged", "if True", "tests/cavity/test_cli_cavity.py"),
    Mutant("cavity: one chain drawn", "cavity/run_figures.py", "zip(series.T, cycle", "zip(series.T[:1], cycle", "tests/cavity/test_run_figures.py"),
    Mutant("cavity: blocks without their places", "cavity/run_figures.py", "for array in (kept, values)", "for array in (values, values)", "tests/cavity/test_run_figures.py"),
    Mutant("cavity: descents not by energy", "cavity/run_figures.py", "energy.argsort(kind=\"stable\").argsort() + 1", "energy.argsort(kind=\"stable\") + 1", "tests/cavity/test_run_figures.py"),
    Mutant("cavity: unfinished descents filled", "cavity/run_figures.py", "mine & ~settled, \"white\"", "mine & ~settled, colour", "tests/cavity/test_run_figures.py"),
    Mutant("cavity: signed M of descents", "cavity/run_figures.py", "np.abs(ends.M)", "ends.M", "tests/cavity/test_run_figures.py"),
    Mutant("cavity: every descent settled", "cavity/ground.py", "np.abs(run.jac).max() <= 100 * tol", "True", REFEREES),
    Mutant("cli: idle options of sweeps", "cli/cavity.py", "if method not in _HEEDED_BY[name]", "if False", "tests/cavity/test_cli_cavity.py"),
    Mutant("cli: idle beta of ground", "cli/cavity.py", "beta not in (None, math.inf)", "False", "tests/cavity/test_cli_cavity.py"),
    Mutant("cli: options of sweeps lost", "cli/cavity.py", "return algorithm(instance, show=None, **given)", "return algorithm(instance, show=None)", "tests/cavity/test_cli_cavity.py"),
    Mutant("cli: length of the walk lost", "cli/cavity.py", "return hmc(instance, show=None, **given)", "return hmc(instance, show=None)", "tests/cavity/test_cli_cavity.py"),
    Mutant("cli: cavity's folder not tried", "cli/cavity.py", "    check_folder(output)", "    pass", "tests/cavity/test_cli_cavity.py"),
]  # fmt: skip


def survives(mutant: Mutant, folder: Path) -> str | None:
    """Why the mutant is not killed, or None if the tests turn red."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "fermibose" / mutant.file
    text = path.read_text(encoding="utf-8")
    if mutant.old not in text:
        return "its text is no longer in the source"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        check=False,
    )
    if run.returncode == 1:
        return None
    return "the tests stayed green" if run.returncode == 0 else "the tests did not run"


def main(selected: list[str]) -> int:
    """Try the selected mutants (all by default); returns how many survive."""
    survivors = 0
    for mutant in MUTANTS:
        if selected and not any(word in mutant.name for word in selected):
            continue
        with tempfile.TemporaryDirectory() as folder:
            reason = survives(mutant, Path(folder))
        survivors += reason is not None
        print(
            f"{'SURVIVES' if reason else 'killed':9s} {mutant.name}{f': {reason}' if reason else ''}"
        )
    return survivors


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
