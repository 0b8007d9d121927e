"""Ways to break the ranks: name, file below src, text, what replaces it, tests that must turn red."""

RANKS, TESTS = "fermibose/machine/ranks.py", "tests/machine/test_ranks.py"
RULE, FORCES = "fermibose/machine/local_rule.py", "fermibose/machine/queries.py"
GRADIENT = f"{TESTS}::test_gradient_is_that_of_the_pair_loss"
QUERIES = f"{TESTS}::test_queries_and_their_adversary_are_those_of_one_process"
ENDS = f"{TESTS}::test_trainings_end_with_the_weights_of_one_process"

MUTANTS = [
    ("ranks: gradients not summed", RULE, "*summed, sums = ranks.total(*summed, sums)", "pass", GRADIENT),
    ("ranks: rows gathered with what was added", RANKS, "rows.flatten(0, 1)[:size]", "rows.flatten(0, 1)", GRADIENT),
    ("ranks: wrong diagonal of the rows", FORCES, "matrix.diagonal(start).fill_(0)", "matrix.diagonal(0).fill_(0)", GRADIENT),
    ("ranks: factor 2 of the force", FORCES, "force.mul_(2 / (units * pairs))", "force.mul_(1 / (units * pairs))", GRADIENT),
    ("ranks: pairs counted in order", RULE, "return n_boson // 2, n_fermion // 2", "return n_boson, n_fermion", GRADIENT),
    ("ranks: added rows repel", FORCES, "pairs[: here.stop - here.start] = True", "pairs[:] = True", GRADIENT),
    ("ranks: activity of the own rows only", RULE, "size = len(copies) * len(labels) * h.shape[1]", "size = h.numel()", GRADIENT),
    ("ranks: forces on keys not summed", FORCES, "ranks.total(found.on_keys)[0][here]", "found.on_keys[here]", GRADIENT),
    ("ranks: mean distance of the own rows", "fermibose/machine/free_energy.py", "total((d2 * pairs).sum(), pairs.sum(), counted.sum())", "((d2 * pairs).sum(), pairs.sum(), counted.sum())", GRADIENT),
    ("ranks: slope of the own rows", "fermibose/machine/free_energy.py", "total(unlike, (excess * d2).sum())", "(unlike, (excess * d2).sum())", GRADIENT),
    ("ranks: own pairs forgotten", FORCES, "if not own and here.start", "if here.start", "tests/machine/test_queries.py"),
    ("ranks: own pairs not counted", RULE, "size * own", "0", "tests/machine/test_queries.py"),
    ("ranks: inputs not queries too", FORCES, "if perturbed and extra:", "if False:", "tests/machine/test_queries.py"),
    ("ranks: each rank a start of its own", "fermibose/machine/adversary.py", "start = ball_around(x, self.threat).random(generator)", "start = ball_around(ranks.part(x), self.threat).random(generator).repeat(ranks.count, 1)", QUERIES),
    ("ranks: added rows are read out", "fermibose/machine/training.py", "residual[here.stop - here.start :] = 0", "pass", ENDS),
    ("ranks: readouts drift apart", "fermibose/machine/training.py", "(self.readout.weight.grad,) = ranks.total(gradient)", "pass", ENDS),
    ("ranks: every rank writes", RANKS, "        if self.ranks.first:\n            super().save", "        if True:\n            super().save", f"{TESTS}::test_checkpoint_is_written_by_the_first_rank_only"),
    ("ranks: each its own checkpoint", RANKS, "self.ranks.told(self.ranks.first and super().exists())", "super().exists()", f"{TESTS}::test_all_ranks_go_on_from_what_the_first_has_read"),
    ("ranks: weights not those of the first", RANKS, "self._send(dist.broadcast, tensor.detach(), 0)", "pass", f"{TESTS}::test_what_the_first_rank_has_counts"),
    ("ranks: other data unnoticed", RANKS, "if self.told(what if self.first else None) != what:", "if False:", f"{TESTS}::test_a_rank_with_other_data_is_refused"),
    ("ranks: all on one GPU", RANKS, "name = f\"cuda:{os.environ['LOCAL_RANK']}\"", "pass", f"{TESTS}::test_each_rank_has_a_gpu_of_its_own"),
    ("ranks: a lost rank is a traceback", RANKS, 'raise _lost("its connection broke") from error', "raise", f"{TESTS}::test_errors_of_the_first_rank_and_of_the_network"),
]  # fmt: skip
