"""Ways to break what a classifier for few labels stands on: layers, pairs, adversary, readouts."""

RULE, FREE = "fermibose/machine/local_rule.py", "fermibose/machine/free_energy.py"
FORCES = "fermibose/machine/queries.py"
CONV, ADVERSARY = "fermibose/machine/convolution.py", "fermibose/machine/adversary.py"
AUGMENT, READOUTS = "fermibose/machine/augment.py", "fermibose/machine/readouts.py"
FRONT, RECIPE = "fermibose/attacks/front_end.py", "fermibose/machine/recipe.py"
CHOICE, BASELINES = "fermibose/attacks/readout_choice.py", "fermibose/machine/baselines.py"
FRONTIER = "fermibose_paper/frontier.py"
MUTANTS = [
    ("free energy: sign of the force", FREE, "(through_mean * pairs - excess)", "(through_mean * pairs + excess)", "tests/machine/test_queries.py"),
    ("free energy: temperature taken as fixed", FREE, "through_mean * pairs - excess", "-excess", "tests/machine/test_queries.py"),
    ("free energy: weights the wrong way round", FREE, "[math.log(self.fermion_weight), math.log(self.boson_weight)]", "[math.log(self.boson_weight), math.log(self.fermion_weight)]", "tests/machine/test_queries.py"),
    ("free energy: all queries counted", FREE, "pairs.sum(), counted.sum())", "pairs.sum(), counted.sum() * 0 + len(counted))", "tests/machine/test_queries.py"),
    ("free energy: what is no pair counts", FREE, "exponents = exponents.masked_fill(~pairs, -torch.inf)", "exponents = exponents + 0", "tests/machine/test_queries.py"),
    ("free energy: mean over all entries", FREE, "(apart / count)", "d2.mean()", "tests/machine/test_queries.py"),
    ("queries: force on keys forgotten", FORCES, "force[-1, :rows] += ranks.total(found.on_keys)[0][here]", "pass", "tests/machine/test_queries.py"),
    ("queries: keys feel the queries' sums", FORCES, "s.sum(0)[:, None] * g", "s.sum(0)[:, None] * g * 2", "tests/machine/test_queries.py"),
    ("queries: own pairs always", FORCES, "own=own and perturbed", "own=True", "tests/machine/test_queries.py"),
    ("queries: pairs of a batch counted once", FORCES, "times = 1 if perturbed else 2", "times = 1", "tests/machine/test_ranks.py::test_gradient_is_that_of_the_pair_loss"),
    ("queries: activity without its size", RULE, "alpha=activity / size", "alpha=activity", "tests/machine/test_queries.py"),
    ("convolution: padding on one side too many", CONV, "padding=self.size // 2)", "padding=self.size // 2 + 1)", "tests/machine/test_convolution.py"),
    ("convolution: energy sees everything", CONV, "if min(h.shape[-2:]) <= self.head_size:", "if True:", "tests/machine/test_convolution.py"),
    ("relu: slope everywhere", RULE, "return grad.mul_(h > 0)", "return grad.mul_(h >= 0)", "tests/machine/test_local_rule.py"),
    ("threshold: not kept in its range", CONV, "self.threshold.clamp_(*self.bounds[\"thresholds\"])", "pass", "tests/machine/test_convolution.py"),
    ("adversary: descends", ADVERSARY, "point = ball.project(move.add_(point.detach()))", "point = ball.project(point.detach() - move)", "tests/machine/test_adversary.py"),
    ("adversary: never grows", ADVERSARY, "grown = self.threat.epsilon * progress / self.ramp", "grown = self.threat.epsilon", "tests/machine/test_adversary.py"),
    ("adversary: own pairs forgotten", ADVERSARY, "own_pairs(labels, ranks, own=self.own)", "own_pairs(labels, ranks)", "tests/machine/test_adversary.py"),
    ("augment: turned the wrong way", AUGMENT, "to_rows = [sin * columns / rows,", "to_rows = [-sin * columns / rows,", "tests/machine/test_augment.py"),
    ("augment: sides mixed up", AUGMENT, "right * self.shift * 2 / columns", "right * self.shift * 2 / rows", "tests/machine/test_augment.py"),
    ("augment: field not brought to strength", AUGMENT, "field = field / field.square().mean((1, 2, 3), keepdim=True).sqrt()", "field = field * 1.0", "tests/machine/test_augment.py"),
    ("augment: windows leave the image", AUGMENT, "place = _symmetric(x, generator, 2) * (1 - side)", "place = _symmetric(x, generator, 2) * side", "tests/machine/test_augment.py"),
    ("kernel: penalty forgotten", READOUTS, "gram.diagonal().add_(spec.penalty / shares(keys, weights).clamp(min=TINY))", "pass", "tests/machine/test_readout.py"),
    ("kernel: width of one side", READOUTS, "apart = 2 * (squares", "apart = (squares", "tests/machine/test_readout.py"),
    ("kernel: Nyström penalises coefficients", READOUTS, "gaussian_kernel(centres, centres, self.gamma) * spec.penalty", "torch.eye(m).double() * spec.penalty", "tests/machine/test_readout.py"),
    ("prototypes: bias forgotten", READOUTS, "readout.bias.copy_(-distance)", "readout.bias.zero_()", "tests/machine/test_readout.py"),
    ("kernel: empty directions blow up", READOUTS, "torch.where(varies, values, torch.inf)", "values", "tests/machine/test_readout.py"),
    ("front end: the ball instead of the box", FRONT, "return gradient.sign() * (self.upper - self.lower) / 2", "return gradient.sign() * 1e-3", "tests/attacks/test_front_end.py"),
    ("front end: bisected the wrong way", FRONT, "above = front(middle) > points", "above = front(middle) < points", "tests/attacks/test_front_end.py"),
    ("front end: anything passes", FRONT, "or not _monotone(box, images):", "or False:", "tests/attacks/test_front_end.py"),
    ("recipe: the first lesson for all", RECIPE, "values = values[number]", "values = values[0]", "tests/machine/test_adversary.py"),
    ("Adam: the rate stays", "fermibose/machine/loop.py", "if not self.cosine:", "if True:", "tests/machine/test_adam.py"),
    ("Adam: averages not put in place", "fermibose/machine/loop.py", "parameter.copy_(average)", "pass", "tests/machine/test_adam.py"),
    ("kernel: the recipe's own readout again", "fermibose/machine/training.py", "net.readout.regress(keys, classes, readout, generator, weights)", "net.readout.regress(keys, classes, recipe.readout, generator, weights)", "tests/attacks/test_readout_choice.py"),
    ("kernel: all keys, however many", READOUTS, "min(self.centres or EXACT, keys)", "min(self.centres or keys, keys)", "tests/machine/test_readout.py"),
    ("kernel: no copies of self-supervised inputs", "fermibose/machine/training.py", 'getattr(recipe.pairing, "transforms", ())', "transforms_of(recipe)", "tests/machine/test_readout.py"),
    ("choice: by clean accuracy only", CHOICE, "return self.clean_accuracy + self.robust_accuracy", "return self.clean_accuracy", "tests/attacks/test_readout_choice.py"),
    ("choice: in front of the threshold", FRONT, 'if parts is None or threat.norm != "linf":\n        return pgd', 'if True:\n        return pgd', "tests/attacks/test_front_end.py"),
    ("baselines: inputs not transformed", BASELINES, "x = transformed(x, self.transforms, self.generator)", "pass", "tests/attacks/test_baselines.py"),
    ("baselines: a threshold that wanders", BASELINES, "layer.constrain()", "pass", "tests/attacks/test_baselines.py"),
    ("baselines: the rate stays", BASELINES, 'cosine=steps if recipe.schedule == "cosine" else 0,', "cosine=0,", "tests/attacks/test_baselines.py"),
    ("frontier: the better of two attacks", FRONTIER, 'min(each["robust_accuracy"], looks[seed]["ℓ∞ 0.1"])', 'max(each["robust_accuracy"], looks[seed]["ℓ∞ 0.1"])', "tests/paper/test_frontier.py"),
    ("frontier: stale settings counted", FRONTIER, 'and row.params["settings"] == settings', "and settings", "tests/paper/test_frontier.py"),
    ("frontier: validation on what was learnt", FRONTIER, "Images(\"mnist5k\").load().first(test_per_class=100)", "Images(\"mnist5k\").load()", "tests/paper/test_frontier.py"),
    ("frontier: baselines without their threshold", "fermibose_paper/contenders.py", 'if track == "raw":\n        return ()', "if True:\n        return ()", "tests/paper/test_frontier.py"),
    ("frontier: copies not learnt", "fermibose_paper/contenders.py", "for _ in range(copies))]", "for _ in range(0))]", "tests/paper/test_frontier.py"),
    ("tables: the worst other", "fermibose_paper/tables.py", "known[OURS].mean - max(", "known[OURS].mean - min(", "tests/paper/test_classifier_tables.py"),
    ("tables: one split for all", "fermibose_paper/tables.py", "shuffle=True, random_state=seed)", "shuffle=True, random_state=0)", "tests/paper/test_classifier_tables.py"),
]  # fmt: skip
