"""Ways to forget the device: name, file below src, text, what replaces it, tests that must turn red."""

TESTS = "tests/machine/test_devices.py"
LEARNS, STAY = (
    f"{TESTS}::test_a_machine_learns_where_its_inputs_are",
    f"{TESTS}::test_attacks_stay_where_the_model_is",
)

MUTANTS = [
    ("devices: inputs brought to the CPU", "fermibose/machine/inputs.py", 'values.device.type not in ("cpu", "meta")', "False", LEARNS),
    ("devices: weights left on the CPU", "fermibose/machine/training.py", "    net = net.to(x.device)\n", "", LEARNS),
    ("devices: numbers drawn on the CPU", "fermibose/machine/training.py", "torch.Generator(x.device).manual_seed", "torch.Generator().manual_seed", LEARNS),
    ("devices: steps counted on the CPU", "fermibose/machine/loop.py", "torch.zeros((), device=where)", "torch.zeros(1)", LEARNS),
    ("devices: identities on the CPU", "fermibose/machine/pairing.py", "torch.arange(len(x), device=x.device)", "torch.arange(len(x))", LEARNS),
    ("devices: kernel solved elsewhere", "fermibose/machine/readouts.py", "dtype=wide, device=keys.device)", "dtype=wide)", LEARNS),
    ("devices: float64 everywhere", "fermibose/compute.py", "device.type in WITHOUT_FLOAT64", "False", LEARNS),
    ("devices: an augmentation of the CPU", "fermibose/machine/augment.py", '"dtype": x.dtype, "device": x.device', '"dtype": x.dtype', LEARNS),
    ("devices: attacks draw on the CPU", "fermibose/attacks/victim.py", "torch.Generator(device).manual_seed", "torch.Generator().manual_seed", STAY),
    ("devices: fractions in float64", "fermibose/compute.py", "int(mask.sum()) / mask.numel()", "float(mask.double().mean())", STAY),
    ("devices: rows of a certificate", "fermibose/attacks/certificate.py", "torch.arange(len(victim.y), device=victim.y.device)", "torch.arange(len(victim.y))", f"{TESTS}::test_certificates"),
    ("devices: a checkpoint from elsewhere", "fermibose/machine/checkpoint.py", "tensors = {name: value.cpu() for name, value in tensors.items()}", "pass", f"{TESTS}::test_a_checkpoint_brings_a_machine_to_any_device"),
]  # fmt: skip
