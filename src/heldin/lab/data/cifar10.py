"""CIFAR-10: 60,000 colour photographs, in five training batches and one test batch; 0 airplane to 9 truck."""

from heldin.lab.data.cifar import cifar

DATASET = cifar(
    "cifar10",
    archive="cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    folder="cifar-10-batches-py",
    train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
    test="test_batch",
    labels="labels",
    num_classes=10,
)
