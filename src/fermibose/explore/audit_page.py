"""The audit page: the verdict on a robust accuracy and the evidence for it, check by check."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fermibose.attacks import AXIS, ThreatModel, audit
from fermibose.checks import is_number
from fermibose.errors import FileFormatError, InputError
from fermibose.explore.drawing import Line, Mark, chart
from fermibose.explore.machine_page import Contest
from fermibose.files import read_json
from fermibose.machine import compute_settings
from fermibose.plotting import COLOURS

LONGEST = 1 << 22  # bytes of an audit.json: a hundred times what one takes
QUICK: dict[str, Any] = {"probe": 20, "square_queries": 200}  # an audit in about half a minute
QUICK_STRENGTH = 0.1
_SIGNS = {"passed": "✓ passed", "inconclusive": "? inconclusive", "FAILED": "✗ FAILED"}


class NoAuditError(InputError):
    """Nothing was audited yet: no error of the reader's."""


def stored(folder: str) -> dict[str, Any]:
    """The audit that `fbm audit` wrote into a folder."""
    path = Path(folder) / "audit.json"
    try:
        if path.stat().st_size > LONGEST:
            raise FileFormatError(f"{path} is too long for an audit")
        record = read_json(path.read_bytes())
    except FileNotFoundError:
        raise NoAuditError(
            f"there is no audit in {folder}: `fbm audit MODEL` makes one, --audit names another "
            "folder, and the button above runs a quick one here"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    except FileFormatError:
        raise
    except ValueError as error:
        raise FileFormatError(f"{path} is not readable as JSON ({error})") from None
    return check(record, str(path))


def check(record: Any, where: str) -> dict[str, Any]:
    """The record of an audit, if it is one."""
    checks = record.get("checks") if isinstance(record, dict) else None
    sound = (
        isinstance(checks, list)
        and isinstance(record.get("verdict"), str)
        and isinstance(record.get("threat"), dict)
        and all(is_number(record.get(name)) for name in ("clean_accuracy", "robust_accuracy"))
        and all(
            isinstance(c, dict)
            and isinstance(c.get("name"), str)
            and isinstance(c.get("evidence"), str)
            and c.get("passed") in (True, False, None)
            for c in checks
        )
    )
    if not sound:
        raise FileFormatError(f"{where} is not what `fbm audit` writes: audit the model again")
    return dict(record)


def quick(
    between: Contest, name: str, progress: Callable[[int, int, str], None] | None = None
) -> dict[str, Any]:
    """A small audit of one of the two nets on the images at hand; progress: as of ``audit``."""
    net = between.nets[name]
    threat = ThreatModel("linf", QUICK_STRENGTH)
    with compute_settings(1):
        found = audit(
            net, between.images, between.labels, threat, **QUICK, show=False, progress=progress
        )
    return {"model": f"{name} (quick: few images and queries)"} | found.as_dict()


def invitation(folder: str) -> str:
    """What an audit is, where there is none yet."""
    return (
        f'<div id="fbm-audit"><p role="status">There is no audit in {escape(folder)} yet.</p>'
        "<p>A robust accuracy is the share of images that stay right under attack, and it is worth "
        "no more than the attacks: a model may only hide its gradient from them. An audit attacks "
        "with everything there is and then checks, one by one, whether the attacks could have "
        "succeeded.</p><ul><li>The button above runs a quick one of the machine: the images of the "
        f"page “Machine”, ℓ∞ {QUICK_STRENGTH:g}, about a minute.</li>"
        "<li><code>fbm audit MODEL</code> makes a whole one and writes it to "
        "<code>fbm-audit</code>, where it is found.</li>"
        "<li><code>fbm explore --audit FOLDER</code> shows one from elsewhere.</li></ul></div>"
    )


def under_way(done: int, total: int, name: str) -> str:
    """How far an audit is, and at what."""
    return (
        f'<div id="fbm-audit"><p role="status">Auditing, {done} of {total} done, now: '
        f'{escape(name)} …</p><progress value="{done}" max="{total}" aria-label="audit"></progress>'
        '<p class="fbm-note">About a minute in all; leaving this page ends it.</p></div>'
    )


def page(record: Mapping[str, Any]) -> str:
    """An audit as HTML; whatever stands in the record is text."""
    failed = any(c["passed"] is False for c in record["checks"])
    body = "".join(
        f'<tr><th scope="row">{escape(c["name"])}</th><td class="fbm-{_outcome(c).lower()}">'
        f"{_SIGNS[_outcome(c)]}</td><td>{escape(c['evidence'])}</td></tr>"
        for c in record["checks"]
    )
    model = escape(str(record.get("model", ""))[:200])
    return (
        f'<div id="fbm-audit"><p role="status" class="fbm-{"message" if failed else "good"}">'
        f"<strong>{model}</strong> {escape(record['verdict'])}</p>"
        f'<div class="fbm-grid"><div>{_curve(record)}</div><div><p>{_how_to_read(record)}</p></div>'
        '</div><div class="fbm-wide" tabindex="0"><table class="fbm-evidence"><caption>Evidence'
        '</caption><thead><tr><th scope="col">check</th><th scope="col">outcome</th>'
        f'<th scope="col">what was seen</th></tr></thead><tbody>{body}</tbody></table></div></div>'
    )


def _outcome(one: Mapping[str, Any]) -> str:
    return {True: "passed", False: "FAILED", None: "inconclusive"}[one["passed"]]


def _how_to_read(record: Mapping[str, Any]) -> str:
    """What the number is worth, in a few sentences."""
    clean, left = 100 * record["clean_accuracy"], 100 * record["robust_accuracy"]
    proved = record.get("certified_accuracy")
    told = (
        f"Without an attack {clean:.1f} % of {escape(str(record.get('images', '?')))} images are "
        f"right; under every attack that was tried {left:.1f} % stay right. "
    )
    if proved is not None and is_number(proved):
        told += f"No attack whatever can bring that below {100 * proved:.1f} %, which is proved. "
    return told + (
        "One failed check is enough to distrust the number: attacks may have failed for want of a "
        "gradient, not for want of an adversarial image. An inconclusive check leaves it open."
    )


def _curve(record: Mapping[str, Any]) -> str:
    """Accuracy of PGD against strength, where that was checked."""
    threat = record["threat"]
    found = [c.get("numbers") for c in record["checks"] if c["name"] == "monotone in ε"]
    numbers = found[0] if found and isinstance(found[0], dict) else {}
    strengths, accuracy = (numbers.get(name) for name in ("epsilons", "accuracy"))
    if not isinstance(strengths, list) or not isinstance(accuracy, list) or not strengths:
        return ""
    if len(strengths) != len(accuracy) or not all(map(is_number, [*strengths, *accuracy])):
        return ""
    # PGD was tried on images that are right at first; of all images it leaves that share of them.
    at, clean = threat.get("epsilon"), record["clean_accuracy"]
    left = 100 * record["robust_accuracy"]
    marks = []
    if is_number(at):
        marks = [Mark(float(at), left, f"every attack: {left:.1f} %", below=True)]
    norm = str(threat.get("norm"))
    return chart(
        "Accuracy under PGD, and under every attack",
        [Line("", strengths, 100 * clean * np.array(accuracy), COLOURS["machine"])],
        labels=(AXIS.get(norm, f"ε ({norm})"), "accuracy (%)"),
        y_range=(0, 105),
        marks=marks,
    )
