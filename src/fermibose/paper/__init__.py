"""The paper's figures, measured again and held against the published numbers.

A figure is a module with ``plan`` (which runs it needs), ``draw`` (what it shows) and ``verdicts``
(what is reproduced and by how much). All runs on images go through the measuring functions in
``runs``; the published numbers are in ``published``.
"""
