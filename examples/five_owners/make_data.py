"""Five small tables with made-up patients, one for each hospital: python make_data.py [FOLDER]"""

import csv
import sys
from pathlib import Path

import numpy as np

HOSPITALS = {"ana": 80, "ben": 150, "cai": 300, "dee": 500, "eva": 900}  # patients
CENTRE = {
    "age": 60,
    "bmi": 27,
    "pressure": 130,
    "glucose": 6,
    "creatinine": 90,
    "haemoglobin": 135,
}
SCALE = [15, 5, 20, 2, 30, 15]
TRUTH = np.array([1.0, 0.0, 0.3, 0.6, 0.0, -0.5])


def main(folder: Path = Path()) -> None:
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in HOSPITALS.items():
        # Patients differ from place to place.
        standard = rng.normal(size=(count, 6)) + rng.normal(size=6) / 3
        readmitted = standard @ TRUTH + rng.logistic(size=count) > 0
        values = (list(CENTRE.values()) + SCALE * standard).round(1)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*CENTRE, "readmitted"])
            writer.writerows([*v, int(r)] for v, r in zip(values.tolist(), readmitted, strict=True))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
