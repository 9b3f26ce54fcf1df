"""`hb.solve(problem, network)` against the best of a grid of tuned methods, on many problems.

    python -m benchmarks.chosen_against_tuned                  all of it, about an hour
    python -m benchmarks.chosen_against_tuned --quick          a handful of problems, two minutes
    python -m benchmarks.chosen_against_tuned --only quad-star wine
    python -m benchmarks.chosen_against_tuned --default-again  after a change of the default

What is finished is kept in runs/chosen_against_tuned and not run again, unless `--again` says so.

The default is a black box: it is given the problem and the network and nothing else. Its competitor
is whichever method and setting of the grids in `tuned.py` does best on the very problem, seeds and
network that it is judged on: no user tunes as well.

Problems are *known* if the default's rules were made or changed while looking at them, and *fresh*
otherwise: drawn by chance, and run once. Fresh problems have their own line in the summary.

The rules. Costs are samples per agent. Several seeds count by their median, row by row.

convex       F is convex and draws have no noise. Cost until |grad F| has fallen to 1e-4 of its
             start; the verdict is the ratio, default / tuned.
noisy        F is convex and draws are noisy. Cost until F - F* is at most 1 % of F(x0) - F*, and
             from there to the end of the run at most 2 %. The verdict is the ratio. A tuned run
             goes on for as long again as it took to arrive, and for 100 steps at least, so that
             luck does not count; one whose steps settle at a chosen end, as the default's may,
             has to stay until that end.
non-convex   All methods spend the samples that the default chose to spend. The share of
             F(x0) - F_best that is closed at the end, where F_best is the lowest F that anything
             reached, centralised L-BFGS included where that is affordable. The verdict is the
             default's share less the best tuned one, in points (percent of the gap).

A default that does not arrive before its own run ends has the ratio infinity; one that diverges or
refuses has infinity, or loses all 100 points. If no tuned run arrives within twice the default's
cost, the ratio is 0.5: it is at most that. Where exact F is too expensive to record, the outer loss
at the mean x and y stands for it.

Goals: on convex problems, with or without noise, a median ratio of at most 1.5 and none above 4; on
others at most 2 points behind; no divergence.
"""
