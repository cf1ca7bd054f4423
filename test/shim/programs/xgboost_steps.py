"""XGBoost: predictions of trees from the GPU equal those from the CPU. Each feature has few values, so both split at the
same places.

usage: xgboost_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys

import numpy
import xgboost

numbers = numpy.random.default_rng(0)
FEATURES = numbers.integers(0, 4, (256, 4)).astype("f")


def trees(labels, **options):
    """Compares the predictions of trees from the CPU and from the GPU."""
    parts = []
    for device in ("cpu", "cuda"):
        data = xgboost.DMatrix(FEATURES, labels, nthread=1)
        settings = {"device": device, "tree_method": "hist", "max_depth": 3, "max_bin": 16, "nthread": 1, **options}
        parts.append(xgboost.train(settings, data, 4).predict(data))
    cpu, gpu = parts
    assert numpy.ptp(cpu) > 0.1, "the trees predict one value"
    numpy.testing.assert_allclose(gpu, cpu, atol=1e-5)


STEPS = {
    "classes": lambda: trees((FEATURES[:, 0] + FEATURES[:, 1] > 3).astype("f"), objective="binary:logistic"),
    "values": lambda: trees(FEATURES @ numpy.array([1, 2, -1, 0.5], "f"), objective="reg:squarederror"),
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
