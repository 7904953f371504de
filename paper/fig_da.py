"""Figure DA: the size of the training set, with and without augmented data."""

from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import across, at_end, exceeding, mean_over
from paper.making import numbered, together
from paper.series import disparity_at_end, ends, whole
from paper.settings import SIZES_RESNET, SIZES_RESNET_AUGMENTED, seconds_of


def build(runs: Runs) -> Built:
    """Both series, all points together, and what augmentation changes at equal size."""
    parts = [
        ends(runs, "da", "training samples", SIZES_RESNET_AUGMENTED),
        ends(runs, "plain", "training samples", SIZES_RESNET),
    ]
    augmented, plain = whole(runs, SIZES_RESNET_AUGMENTED), whole(runs, SIZES_RESNET)
    numbers = {}
    if augmented and plain:
        both = [*augmented.values(), *plain.values()]
        numbers["both.rho.error"] = across([(disparity_at_end(group), at_end(group, "test_error")) for group in both])
        sizes = [size for size in augmented if size in plain]
        for name, of in (("disparity", disparity_at_end), ("error", lambda group: at_end(group, "test_error"))):
            ours, theirs = (mean_over([of(series[size]) for size in sizes]) for series in (augmented, plain))
            numbers[f"da-plain.{name}"] = exceeding(ours, theirs)
    return together(*parts, numbered(numbers))


SERIES = (SIZES_RESNET, SIZES_RESNET_AUGMENTED)
ITEM = Item(
    label="fig:DA",
    claim="Gradient disparity falls with the size of the training set, as the test error does; augmenting the data "
    "lowers both.",
    stage=3,
    specs=lambda profile: [s for series in SERIES for setting in series.values() for s in setting.full(profile)],
    build=build,
    differs="640, 1,280 and 2,560 samples, width 1/16, 25 epochs.",
    seconds=seconds_of,
)
