"""What pooled data would give: exact values, the optimum, curvature, constants, a choice."""
