"""Measure losses of logits and fits of calibrators, in bare reads of the same store.

    python benchmarks/calibrating.py [--samples 200000] [--classes 1000] [--repeat 5] [--folder FOLDER]

A bare read reads every chunk once with zarr, in two threads of Dask, and keeps nothing. Times are wall-clock seconds and the
CPU seconds of all cores, which other load on the machine affects less.
"""

from __future__ import annotations

import time

from measuring import bare_read, make_logits, markdown, parser, scores_of, workplace

import avgk_dask as avgk


def measured(function, repeat: int) -> tuple[float, float]:
    """Return the least wall-clock seconds and the least CPU seconds of all cores."""
    times = []
    for _ in range(repeat):
        clock, cores = time.perf_counter(), time.process_time()
        function()
        times.append((time.perf_counter() - clock, time.process_time() - cores))
    return min(one[0] for one in times), min(one[1] for one in times)


def main() -> None:
    arguments = parser(__doc__).parse_args()
    with workplace(arguments.folder) as folder:
        path = make_logits(folder, arguments.samples, arguments.classes)
        fit = avgk.calibration.TemperatureScaling().fit(path)
        lazy = avgk.softmax(path)
        steps = {
            "bare read": lambda: bare_read(scores_of(path)),
            "losses.nll of softmax": lambda: avgk.losses.nll(lazy),
            "expected calibration error": lambda: avgk.losses.expected_calibration_error(lazy),
            f"TemperatureScaling.fit, {fit.n_reads} reads": lambda: avgk.calibration.TemperatureScaling().fit(path),
        }
        times = {name: measured(function, arguments.repeat) for name, function in steps.items()}
    bare = times["bare read"]
    rows = [
        (name, *(f"{t:.3f}" for t in both), *(f"{t / b:.1f}" for t, b in zip(both, bare, strict=True)))
        for name, both in times.items()
    ]
    print(fit)
    print(markdown(("", "s", "core s", "bare reads", "bare reads, cores"), rows))


if __name__ == "__main__":
    main()
