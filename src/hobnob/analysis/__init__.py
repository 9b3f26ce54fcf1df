"""What pooled data shows: exact values, the optimum, curvature, constants, a choice of method."""
