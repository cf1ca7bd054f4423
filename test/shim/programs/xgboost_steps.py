"""XGBoost: predictions of trees from the GPU equal those from the CPU, if both split at the same places: if each feature has
few values, or if the GPU is given the CPU's cuts. XGBoost's two sketches choose different cuts of many values.

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


REALS = numpy.random.default_rng(1).standard_normal((300, 4)).astype("f")
BINS = 8


def train(device, data):
    settings = {"device": device, "tree_method": "hist", "max_depth": 3, "max_bin": BINS, "nthread": 1}
    return xgboost.train(settings, data, 4).predict(xgboost.DMatrix(REALS, nthread=1))


def same_cuts():
    """A QuantileDMatrix of host memory is cut by the CPU."""
    data = xgboost.QuantileDMatrix(REALS, REALS.sum(1), max_bin=BINS, nthread=1)
    cpu, gpu = train("cpu", data), train("cuda", data)
    assert numpy.ptp(cpu) > 0.1, "the trees predict one value"
    numpy.testing.assert_allclose(gpu, cpu, atol=1e-5)


def cut_ranks(count, kept):
    """How many values lie below each cut, by the rule of XGBoost's paper (A.4) for `kept` of `count` different values. The
    value at place i has ranks i to i + 1."""
    places = numpy.arange(1, kept - 1, dtype="f") * numpy.float32(count - 2) / numpy.float32(kept - 1) + 1
    below = numpy.floor(places - 0.5)
    return [*numpy.where(places < below + 1, below, below + 1).astype(int), count]


def gpu_cuts():
    data = xgboost.DMatrix(REALS, REALS.sum(1), nthread=1)
    train("cuda", data)
    places, cuts = data.get_quantile_cut()
    for feature in range(REALS.shape[1]):
        mine = cuts[places[feature] + 1 : places[feature + 1]]
        assert [int((REALS[:, feature] < cut).sum()) for cut in mine] == cut_ranks(len(REALS), BINS + 1), feature


STEPS = {
    "same-cuts": same_cuts,
    "gpu-cuts": gpu_cuts,
    "classes": lambda: trees((FEATURES[:, 0] + FEATURES[:, 1] > 3).astype("f"), objective="binary:logistic"),
    "values": lambda: trees(FEATURES @ numpy.array([1, 2, -1, 0.5], "f"), objective="reg:squarederror"),
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
