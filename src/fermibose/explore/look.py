"""The look of the pages: columns that become one on a phone, numbers that line up."""

from fermibose.plotting import COLOURS

STYLE = f"""<style>
.fbm-grid {{ display: grid; gap: 1rem 1.5rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }}
.fbm-grid > *, .fbm-split > * {{ min-width: 0; }}
.fbm-split {{ display: grid; gap: 1rem 2rem; align-items: start; }}
@media (min-width: 800px) {{ .fbm-split {{ grid-template-columns: 330px 1fr; }} }}
.fbm-title {{ font-size: 1.5rem; font-weight: 600; margin: 0; }}
.fbm-chart {{ width: 100%; max-width: 440px; height: auto; display: block; }}
.fbm-large .fbm-chart {{ max-width: 620px; }}
.fbm-numbers, .fbm-evidence {{ border-collapse: collapse; width: 100%; max-width: 900px;
  font-size: .9rem; }}
.fbm-numbers caption, .fbm-evidence caption {{ text-align: left; font-weight: 600;
  padding-bottom: .3rem; }}
.fbm-numbers th, .fbm-evidence th {{ text-align: left; font-weight: 400; padding: .12rem .6rem
  .12rem 0; vertical-align: top; }}
.fbm-numbers thead th, .fbm-evidence thead th {{ font-weight: 600; }}
.fbm-numbers td {{ font-variant-numeric: tabular-nums; padding: .12rem .6rem .12rem 0;
  white-space: nowrap; }}
.fbm-evidence td {{ padding: .12rem .6rem .12rem 0; vertical-align: top; }}
.fbm-evidence td:nth-child(2) {{ white-space: nowrap; font-weight: 600; }}
.fbm-numbers tr, .fbm-evidence tr {{ border-bottom: 1px solid rgb(127 127 127 / .25); }}
.fbm-wide {{ overflow-x: auto; margin-top: 1rem; }}
.fbm-note {{ font-size: .85rem; opacity: .8; margin: .5rem 0; max-width: 60rem; }}
.fbm-note code span {{ white-space: nowrap; }}
.fbm-message, .fbm-good {{ border-left: 5px solid {COLOURS["baseline"]}; padding: .4rem .8rem;
  overflow-wrap: anywhere; max-width: 60rem; }}
.fbm-good {{ border-left-color: {COLOURS["boson"]}; }}
.fbm-failed {{ text-decoration: underline; }}
.fbm-image {{ display: inline-block; margin: 0 1rem .5rem 0; }}
.fbm-image img {{ width: 140px; image-rendering: pixelated; display: block; }}
.fbm-image figcaption {{ font-size: .85rem; }}
.fbm-beside {{ display: flex; gap: 0 1rem; align-items: start; }}
.fbm-beside > :not(.fbm-image) {{ min-width: 0; flex: 1 1 0; }}
@media (max-width: 500px) {{ .fbm-beside {{ flex-wrap: wrap; }}
  .fbm-beside > :not(.fbm-image) {{ flex-basis: 100%; }} }}
.fbm-says {{ margin: 0 0 .4rem; font-size: 1.05rem; font-weight: 600; }}
[role=status] {{ margin: 0 0 .8rem; }}
/* On a phone a branch is a column: eight cells beside each other do not fit. */
@media (max-width: 500px) {{
  #fbm-branches table {{ display: flex; flex-wrap: wrap; }}
  #fbm-branches caption {{ flex: 0 0 100%; }}
  #fbm-branches thead, #fbm-branches tbody {{ display: flex; }}
  #fbm-branches tbody {{ flex: 1 1 0; overflow-x: auto; }}
  #fbm-branches tr {{ display: flex; flex-direction: column; flex: 1 0 auto; border: 0; }}
  #fbm-branches th, #fbm-branches td {{ white-space: nowrap;
    border-bottom: 1px solid rgb(127 127 127 / .25); }}
}}
.fbm-controls {{ display: grid; gap: .4rem 1.5rem; align-items: end;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 250px), 1fr)); }}
</style>"""
