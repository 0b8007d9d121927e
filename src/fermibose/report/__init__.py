"""The report: one self-contained HTML file that tells the whole story."""
