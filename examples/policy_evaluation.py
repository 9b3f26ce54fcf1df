"""Policy evaluation with the paper's step sizes: how fast the squared error falls.

Five agents share one environment of 40 states (the paper has 100), each with its own rewards.
"""

import numpy as np

import hobnob as hb


def main() -> None:
    regulariser = 1.0
    problem = hb.problems.get("policy")(agents=5, states=40, regulariser=regulariser)
    average = hb.schedules.capped(0.5, 50)
    dsbo = hb.DSBO(
        alpha=hb.schedules.capped(0.01, 2 / regulariser),
        beta=average,
        gamma=average,
        terms=1,  # the inner Hessian is the identity: one term of the series is exact
        smoothness=1.0,
        strong_convexity=1.0,
    )
    options = {"steps": 4000, "record_every": 200, "metrics": ["squared_error"]}
    result = hb.solve(problem, hb.ring(5), dsbo, seed=range(8), **options)
    step, error = result.history["step"][0], result.history["squared_error"].mean(axis=0)
    for t in (0, 400, 1000, 4000):
        print(f"step {t:5}: |x - x*|^2 = {error[step == t][0]:.2e}, mean of 8 seeds")
    tail = step >= 400
    slope = np.polyfit(np.log(step[tail]), np.log(error[tail]), 1)[0]
    print(f"slope from step 400 on: {slope:.2f} (a rate of 1/t would be -1)")


if __name__ == "__main__":
    main()
