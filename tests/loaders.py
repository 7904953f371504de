"""Loaders that several tests use."""

from torch.utils.data import DataLoader


class Repeating:
    """A batch sampler that never ends."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


class Reusing(DataLoader):
    """One iterator for the whole training, as in timm and YOLO."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", Repeating(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)
