"""Ways to break scaling, the estimator and the word on collapse, as in the other lists."""

SCALING = "fermibose/machine/scaling.py"
TRAINING = "fermibose/machine/training.py"
ESTIMATOR = "fermibose/estimator.py"
LISTED = "tests/machine/test_scaling.py"
COLLAPSE = "tests/machine/test_collapse.py"
TESTS = "tests/test_estimator.py"

MUTANTS = [
    ("scaling cannot be turned off", SCALING, 'if scaling == "none":', "if False:", f"{TESTS}::test_scaling_can_be_asked_for"),
    ("scaling cannot be asked for", SCALING, 'if scaling == "auto":', "if True:", f"{TESTS}::test_scaling_can_be_asked_for"),
    ("anything in the unit range is a picture", SCALING, "if dark < BACKGROUND or", "if", LISTED),
    ("dim pictures stay dim", SCALING, 'return "none" if NEARLY_ONE <= highest <= 1 + ROUNDING else "global"', 'return "none"', LISTED),
    ("rare words are pictures", SCALING, " or np.sqrt(square) < BRIGHTNESS", "", LISTED),
    ("two columns are a picture", SCALING, "x.shape[1] < PIXELS or ", "", LISTED),
    ("squares overflow", SCALING, "((part / largest - mean) ** 2).sum(0)", "((part - mean * largest) ** 2).sum(0) / largest**2", LISTED),
    ("rounding becomes a feature", SCALING, "high - low <= CONSTANT * largest", "high - low <= 0", LISTED),
    ("noise meets standardised tables", SCALING, '"per_feature" if bounded else "standard"', '"standard"', LISTED),
    ("tables learn like pictures", ESTIMATOR, 'name = "table" if table else "paper"', 'name = "paper"', f"{TESTS}::test_tables_are_standardised_inside_and_get_settings_of_their_own"),
    ("given parameters are ignored", ESTIMATOR, "if field.name in given and", "if False and", f"{TESTS}::test_parameters_that_are_given_are_kept"),
    ("self-supervised tables learn like labelled ones", ESTIMATOR, 'scaling.by_feature and isinstance(pairing, ByLabel)', "scaling.by_feature", f"{TESTS}::test_self_supervised_layers_see_tables_in_the_unit_range"),
    ("thresholds start at 0", "fermibose/machine/local_rule.py", "self.bias.normal_(generator=generator)", "pass", LISTED),
    ("a collapse without a word", TRAINING, "        _warn_of_collapse(records, recipe, inputs)", "        pass", COLLAPSE),
    ("a layer that grows has collapsed", TRAINING, "min(COLLAPSED * aim, first) if aim", "COLLAPSED * aim if aim", COLLAPSE),
    ("nothing repels, nothing warns", TRAINING, "else COLLAPSED * first", "else 0.0", COLLAPSE),
    ("bosons far apart have collapsed", TRAINING, " or _mean(boson[-epoch:]) >= limit:", ":", COLLAPSE),
    ("the command hides the warning", "fermibose/cli/train.py", "*place, **more: say(", "*place, **more: str(", COLLAPSE),
    ("d_F of layers chosen by a random readout", "fermibose/estimator.py", 'replace(recipe, readout="ridge") if recipe.readout_epochs == 0 else recipe', "recipe", "tests/test_estimator.py"),
]  # fmt: skip
