"""Ways to break what a classifier for few labels stands on: layers, pairs, adversary, readouts."""

RULE, FREE = "fermibose/machine/local_rule.py", "fermibose/machine/free_energy.py"
CONV, ADVERSARY = "fermibose/machine/convolution.py", "fermibose/machine/adversary.py"
AUGMENT, READOUTS = "fermibose/machine/augment.py", "fermibose/machine/readouts.py"
FRONT, RECIPE = "fermibose/attacks/front_end.py", "fermibose/machine/recipe.py"
MUTANTS = [
    ("free energy: sign of the force", FREE, "(through_mean * pairs - excess)", "(through_mean * pairs + excess)", "tests/machine/test_queries.py"),
    ("free energy: temperature taken as fixed", FREE, "through_mean * pairs - excess", "-excess", "tests/machine/test_queries.py"),
    ("free energy: weights the wrong way round", FREE, "[math.log(self.fermion_weight), math.log(self.boson_weight)]", "[math.log(self.boson_weight), math.log(self.fermion_weight)]", "tests/machine/test_queries.py"),
    ("free energy: all queries counted", FREE, "queries = counted.sum().clamp(min=1)", "queries = len(counted)", "tests/machine/test_queries.py"),
    ("free energy: what is no pair counts", FREE, "exponents = exponents.masked_fill(~pairs, -torch.inf)", "exponents = exponents + 0", "tests/machine/test_queries.py"),
    ("free energy: mean over all entries", FREE, "((d2 * pairs).sum() / count)", "d2.mean()", "tests/machine/test_queries.py"),
    ("queries: force on keys forgotten", RULE, "force[-size:] += forces.on_keys", "pass", "tests/machine/test_queries.py"),
    ("queries: keys feel the queries' sums", RULE, "s.sum(0)[:, None] * g", "s.sum(0)[:, None] * g * 2", "tests/machine/test_queries.py"),
    ("queries: own pairs always", RULE, "torch.ones_like(others) if own else others", "torch.ones_like(others)", "tests/machine/test_queries.py"),
    ("queries: pairs of a batch counted once", RULE, "times = 2 if perturbed is None else 1", "times = 1", "tests/machine/test_queries.py"),
    ("queries: activity without its size", RULE, "force.add_(h.sign(), alpha=activity / h.numel())\n            gradients", "force.add_(h.sign(), alpha=activity)\n            gradients", "tests/machine/test_queries.py"),
    ("convolution: padding on one side too many", CONV, "padding=self.size // 2)", "padding=self.size // 2 + 1)", "tests/machine/test_convolution.py"),
    ("convolution: energy sees everything", CONV, "if min(h.shape[-2:]) <= self.head_size:", "if True:", "tests/machine/test_convolution.py"),
    ("relu: slope everywhere", RULE, "return grad.mul_(h > 0)", "return grad.mul_(h >= 0)", "tests/machine/test_local_rule.py"),
    ("threshold: not kept in its range", CONV, "self.threshold.clamp_(*self.bounds[\"thresholds\"])", "pass", "tests/machine/test_convolution.py"),
    ("adversary: descends", ADVERSARY, "point = ball.project(move.add_(point.detach()))", "point = ball.project(point.detach() - move)", "tests/machine/test_adversary.py"),
    ("adversary: never grows", ADVERSARY, "grown = self.threat.epsilon * progress / self.ramp", "grown = self.threat.epsilon", "tests/machine/test_adversary.py"),
    ("adversary: own pairs forgotten", ADVERSARY, "torch.ones_like(same) if self.own else", "torch.ones_like(same) if False else", "tests/machine/test_adversary.py"),
    ("augment: turned the wrong way", AUGMENT, "to_rows = [sin * columns / rows,", "to_rows = [-sin * columns / rows,", "tests/machine/test_augment.py"),
    ("augment: sides mixed up", AUGMENT, "right * self.shift * 2 / columns", "right * self.shift * 2 / rows", "tests/machine/test_augment.py"),
    ("augment: field not brought to strength", AUGMENT, "field = field / field.square().mean((1, 2, 3), keepdim=True).sqrt()", "field = field * 1.0", "tests/machine/test_augment.py"),
    ("augment: windows leave the image", AUGMENT, "place = _symmetric(x, generator, 2) * (1 - side)", "place = _symmetric(x, generator, 2) * side", "tests/machine/test_augment.py"),
    ("kernel: penalty forgotten", READOUTS, "gram.diagonal().add_(spec.penalty)", "pass", "tests/machine/test_readout.py"),
    ("kernel: width of one side", READOUTS, "spread = 2 * (keys", "spread = (keys", "tests/machine/test_readout.py"),
    ("kernel: Nyström penalises coefficients", READOUTS, "gaussian_kernel(centres, centres, self.gamma) * spec.penalty", "torch.eye(m).double() * spec.penalty", "tests/machine/test_readout.py"),
    ("prototypes: bias forgotten", READOUTS, "readout.bias.copy_(-distance)", "readout.bias.zero_()", "tests/machine/test_readout.py"),
    ("kernel: empty directions blow up", READOUTS, "torch.where(varies, values, torch.inf)", "values", "tests/machine/test_readout.py"),
    ("front end: the ball instead of the box", FRONT, "return gradient.sign() * (self.upper - self.lower) / 2", "return gradient.sign() * 1e-3", "tests/attacks/test_front_end.py"),
    ("front end: bisected the wrong way", FRONT, "above = front(middle) > points", "above = front(middle) < points", "tests/attacks/test_front_end.py"),
    ("front end: anything passes", FRONT, "or not _monotone(box, images):", "or False:", "tests/attacks/test_front_end.py"),
    ("recipe: the first lesson for all", RECIPE, "values = values[number]", "values = values[0]", "tests/machine/test_adversary.py"),
    ("Adam: the rate stays", "fermibose/machine/loop.py", "if not self.cosine:", "if True:", "tests/machine/test_adam.py"),
    ("Adam: averages not put in place", "fermibose/machine/loop.py", "parameter.copy_(average)", "pass", "tests/machine/test_adam.py"),
]  # fmt: skip
