"""CIFAR-100: 60,000 colour photographs, in one training and one test batch; fine labels, 0 apple to 99 worm."""

from heldin.lab.data.cifar import cifar

DATASET = cifar(
    "cifar100",
    archive="cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    labels="fine_labels",
    num_classes=100,
)
