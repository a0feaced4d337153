"""The paper's tables of complexity: layer tables, formulas, printed values, and Markdown of them."""
