"""The notebook of ``fbm explore``: sliders and pages; what they show is computed beside it.

``fbm explore --edit`` opens a copy of it to change. It runs with ``marimo run`` too.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="fermibose explore", html_head_file="notebook_head.html")


@app.cell
def _():
    import marimo as mo

    from fermibose.errors import FermiboseError
    from fermibose.explore import choices, theory_page
    from fermibose.explore.desk import Desk
    from fermibose.explore.look import STYLE
    from fermibose.explore.serve import Settings

    settings, desk = Settings.from_environment(), Desk()
    typed = {"norm": 2.0}  # the last norm that was one
    mo.Html(STYLE + '<h1 class="fbm-title">The Fermi-Bose machine</h1>')
    return FermiboseError, choices, desk, mo, settings, theory_page, typed


@app.cell
def _(mo, theory_page):
    def controls(*elements):
        """Sliders side by side, one below the other on a phone."""
        return mo.Html('<div class="fbm-controls">' + "".join(e.text for e in elements) + "</div>")

    def refusal(error):
        """An error meant for people."""
        return mo.Html(theory_page.refusal(error))

    return controls, refusal


@app.cell
def _(mo):
    tabs = mo.ui.tabs(dict.fromkeys(["Theory", "Machine", "Training", "Audit"], ""))
    tabs
    return (tabs,)


# Theory


@app.cell
def _(choices, mo):
    pairing = mo.ui.dropdown(
        {"disjoint pairs": "disjoint", "all pairs": "all"}, value="disjoint pairs", label="pairing"
    )
    cold = mo.ui.switch(label="zero temperature")
    _label = "norm: 2, inf, p".replace(" ", "\N{NO-BREAK SPACE}")
    norm = mo.ui.text(value="2", label=_label, max_length=choices.LONGEST_NORM)
    sliders = {
        name: mo.ui.slider(
            steps=span.steps, value=span.value, label=span.label, show_value=True, full_width=True
        )
        for name, span in choices.RANGES.items()
    }
    sliders = mo.ui.dictionary(sliders)
    return cold, norm, pairing, sliders


@app.cell
def _(cold, controls, mo, norm, pairing, sliders, tabs):
    mo.stop(tabs.value != "Theory")
    _amount = ["alpha", "rho"] if pairing.value == "disjoint" else ["samples"]
    _names = [*_amount, "delta", *([] if cold.value else ["beta"]), "d_f", "weight_decay", "eps"]
    controls(pairing, cold, *(sliders.elements[name] for name in _names), norm)
    return


@app.cell
def _(FermiboseError, cold, desk, mo, norm, pairing, refusal, sliders, tabs, theory_page, typed):
    desk.stop()  # nobody waits for the last position of the sliders any more
    mo.stop(tabs.value != "Theory")

    def _shown(answer, how):
        mo.output.replace(mo.Html(theory_page.page(answer, **how)))

    def _refine(first, how):
        for answer in desk.fine(first):
            if not mo.current_thread().should_exit:
                _shown(answer, how)

    _complaint = ""
    try:
        typed["norm"] = theory_page.norm_of(norm.value)
    except FermiboseError as error:
        _complaint = f"{error}; what is shown is for {theory_page.word_of(typed['norm'])}"
    try:
        _eps = theory_page.strength_of(sliders.value["eps"])
        _how = {"norm": typed["norm"], "eps": _eps, "complaint": _complaint}
        _problem = theory_page.problem_of(sliders.value, pairing=pairing.value, cold=cold.value)
        _first = desk.quick(_problem)
        _shown(_first, _how)
        mo.Thread(target=_refine, args=(_first, _how)).start()
    except FermiboseError as error:
        mo.output.replace(refusal(error))
    return


# Machine


@app.cell
def _(choices, mo):
    attack = mo.ui.dropdown(list(choices.ATTACKS), value="FGSM (ℓ∞)", label="attack")
    image = mo.ui.slider(
        0,
        choices.IMAGES - 1,
        1,
        value=70,
        label=f"test image, 0 to {choices.IMAGES - 1}",
        show_value=True,
        full_width=True,
    )
    return attack, image


@app.cell
def _(attack, choices, mo):
    strength = mo.ui.slider(
        steps=choices.strengths(attack.value),
        value=choices.strengths(attack.value)[choices.MIDDLE],
        label="ε: strength of the attack",
        show_value=True,
        full_width=True,
    )
    return (strength,)


@app.cell
def _(attack, controls, image, mo, strength, tabs):
    mo.stop(tabs.value != "Machine")
    controls(image, attack, strength)
    return


@app.cell
def _(FermiboseError, attack, image, mo, refusal, settings, strength, tabs):
    mo.stop(tabs.value != "Machine")
    from fermibose.explore import machine_page

    try:
        _between = machine_page.contest(settings)
        _page = mo.Html(machine_page.page(_between, image.value, attack.value, strength.value))
    except FermiboseError as error:
        _page = refusal(error)
    _page
    return


# Training


@app.cell
def _(choices, mo):
    subject = mo.ui.dropdown(["digits", "Gaussian clusters"], value="digits", label="data")
    later = {"debounce": True, "show_value": True, "full_width": True}  # when it is let go
    target = mo.ui.slider(
        *choices.TARGETS, 0.05, value=0.4, label=choices.RANGES["d_f"].label, **later
    )
    epoch = mo.ui.slider(
        steps=list(choices.EPOCHS),
        value=choices.EPOCHS[-1],
        label="epoch of the plane",
        show_value=True,
        full_width=True,
    )
    width = mo.ui.slider(
        *choices.WIDTHS, 0.05, value=0.5, label=choices.RANGES["delta"].label, **later
    )
    rate = mo.ui.slider(*choices.RATES, 0.1, value=1, label="η: learning rate", **later)
    return epoch, rate, subject, target, width


@app.cell
def _(controls, epoch, mo, rate, subject, tabs, target, width):
    mo.stop(tabs.value != "Training")
    controls(subject, target, *([epoch] if subject.value == "digits" else [width, rate]))
    return


@app.cell
def _(FermiboseError, epoch, mo, rate, refusal, subject, tabs, target, width):
    mo.stop(tabs.value != "Training")
    from fermibose.explore import training_page

    try:
        if subject.value == "digits":
            with mo.status.spinner("training, a few seconds …"):
                _lesson = training_page.lesson(target.value)
            _page = mo.Html(training_page.digits_page(_lesson, epoch.value))
        else:
            _page = mo.Html(training_page.clusters_page(width.value, target.value, rate.value))
    except FermiboseError as error:
        _page = refusal(error)
    _page
    return


# Audit


@app.cell
def _(mo):
    quick = mo.ui.run_button(label="Quick audit of the machine")
    return (quick,)


@app.cell
def _(mo, quick, tabs):
    mo.stop(tabs.value != "Audit")
    quick
    return


@app.cell
def _(FermiboseError, mo, quick, refusal, settings, tabs):
    mo.stop(tabs.value != "Audit")
    from fermibose.explore import audit_page

    def _told(done, total, name):
        if mo.current_thread().should_exit:
            raise SystemExit  # of this thread: the reader has left
        mo.output.replace(mo.Html(audit_page.under_way(done, total, name)))

    def _audited(between):
        try:
            _found = mo.Html(audit_page.page(audit_page.quick(between, "machine", _told)))
        except FermiboseError as error:
            _found = refusal(error)
        if not mo.current_thread().should_exit:
            mo.output.replace(_found)

    try:
        if quick.value:
            from fermibose.explore.machine_page import contest

            mo.Thread(target=_audited, args=(contest(settings),)).start()
        else:
            mo.output.replace(mo.Html(audit_page.page(audit_page.stored(settings.audit))))
    except audit_page.NoAuditError:
        mo.output.replace(mo.Html(audit_page.invitation(settings.audit)))
    except FermiboseError as error:
        mo.output.replace(refusal(error))
    return


if __name__ == "__main__":
    app.run()
