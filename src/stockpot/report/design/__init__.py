"""The look that all pages share: one style sheet, one frame, tables that sort, filter and fit.

A page is `render_page(template, ...)` with a template that extends `base.html.j2`, and its tables
are `table(...)` of columns and rows. Everything is inside the one file; nothing is loaded.
"""

from stockpot.report.design.frame import environment, json_script, render_page
from stockpot.report.design.table import Cell, Column, score_cell, table

__all__ = ["Cell", "Column", "environment", "json_script", "render_page", "score_cell", "table"]
