"""The cost of measuring while a language model is fine-tuned: all of it, or LoRA adapters alone.

Claim: only trainable parameters are probed, so that a measurement holds gradients of the adapters alone and takes less
time than one of the whole model; both as ratios. Counted in operations, a measurement does what training does: no
gradient of a frozen weight is computed.

Setting: a causal language model of Llama's kind, built from a configuration (4 layers of 256 units, 4,000 tokens; 5.2
million parameters), texts of 64 tokens in batches of 8; adapters of rank 8 on the query and value projections. Random
tokens: what is timed does not depend on them.

Hardware class: a shared virtual machine, x86-64, 2 cores, no GPU; float32; one thread.

Method: the procedures alternate within each repeat, and the median over repeats of the ratio of their processor times
is reported with its quartiles, since other load slows both. The share of an epoch is taken inside the Trainer:
processor time spent measuring over all of an epoch of 40 steps, its first measurement and its settling of the loss
included.

Usage: `python benchmarks/bench_lora.py [--quick]`.
"""

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import heldin
from heldin.integrations.transformers import HeldInStopping
from ratios import processor_seconds, summarize

NUM_BATCHES, BATCH_SIZE, LENGTH, VOCABULARY, NUM_STEPS = 5, 8, 64, 4000, 40
RESULTS = Path(__file__).parent / "results" / "lora.json"

Batch = dict[str, torch.Tensor]


def main() -> None:
    """Run both cases; print the table and, without --quick, write it to a file."""
    parser = argparse.ArgumentParser(description="Measuring while LoRA adapters are trained, as ratios.")
    parser.add_argument("--quick", action="store_true", help="few repeats, and nothing written")
    num_repeats = 2 if (quick := parser.parse_args().quick) else 15
    torch.set_num_threads(1)
    header: dict[str, Any] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "num_batches": NUM_BATCHES,
        "batch_size": BATCH_SIZE,
    }
    print(", ".join(f"{name} {value}" for name, value in header.items()))
    models = {"full": language_model(), "LoRA": with_adapters(language_model())}
    rows = [
        *operation_rows(models),
        *time_rows(models, num_repeats),
        *epoch_rows(models, num_repeats=1 if quick else 3),
    ]
    header["load_after"] = round(os.getloadavg()[0], 2)
    for found in rows:
        print(line(found))
    if not quick:
        RESULTS.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


def language_model() -> nn.Module:
    """A small causal language model."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=4,
            num_attention_heads=4,
            use_cache=False,
        )
    )


def with_adapters(model: nn.Module) -> nn.Module:
    """The same model, with adapters of rank 8 and everything else frozen."""
    settings = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, settings)


def texts(num: int) -> list[Batch]:
    """Batches of random tokens."""
    ids = torch.randint(VOCABULARY, (num, BATCH_SIZE, LENGTH))
    return [{"input_ids": one, "labels": one} for one in ids]


def time_rows(models: dict[str, nn.Module], num_repeats: int) -> list[dict[str, Any]]:
    """Time measurements and plain passes of both models alternately."""
    batches = texts(NUM_BATCHES)
    works: dict[str, Callable[[], object]] = {}
    for name, model in models.items():
        works[f"measure {name}"] = lambda m=model: heldin.measure(m, None, batches)
        works[f"passes {name}"] = lambda m=model: plain_passes(m, batches)
    taken: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(-1, num_repeats):
        for name in sorted(works, reverse=repeat % 2 == 1):
            spent = processor_seconds(works[name])
            if repeat >= 0:  # the one before warms up
                taken[name].append(spent)

    def ratio(above: str, below: str) -> list[float]:
        return [one / other for one, other in zip(taken[above], taken[below], strict=True)]

    return [
        row(models, "time of a measurement: LoRA / full", ratio("measure LoRA", "measure full")),
        row(models, "full: measurement / 5 plain passes", ratio("measure full", "passes full")),
        row(models, "LoRA: measurement / 5 plain passes", ratio("measure LoRA", "passes LoRA")),
        row(models, "gradients held: LoRA / full", [trainable(models["LoRA"]) / trainable(models["full"])]),
    ]


def operation_rows(models: dict[str, nn.Module]) -> list[dict[str, Any]]:
    """Count the operations of matrix products: where the time of a measurement goes.

    With adapters, gradients of frozen weights are not computed, a third of all operations. The forward pass, and the
    backward pass through the activations above the lowest adapter, have to be computed in full.
    """
    batches = texts(2)

    def count(work: Callable[[], object]) -> int:
        with FlopCounterMode(display=False) as counter:
            work()
        return counter.get_total_flops()

    measured = {name: count(lambda m=model: heldin.measure(m, None, batches)) for name, model in models.items()}
    trained = count(lambda: plain_passes(models["LoRA"], batches))
    with torch.no_grad():
        forward = count(lambda: [models["LoRA"](**batch) for batch in batches])
    return [
        row(models, "operations of a measurement: LoRA / full", [measured["LoRA"] / measured["full"]]),
        row(models, "LoRA: operations, measurement / passes", [measured["LoRA"] / trained]),
        row(models, "LoRA: share of the forward pass", [forward / measured["LoRA"]]),
    ]


def epoch_rows(models: dict[str, nn.Module], num_repeats: int) -> list[dict[str, Any]]:
    """The share of an epoch of the Trainer that measuring takes."""
    shares: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(num_repeats):
        for name, model in models.items():
            shares[name].append(share_of_an_epoch(model))
    return [row(models, f"{name}: share of an epoch of {NUM_STEPS} steps", found) for name, found in shares.items()]


def share_of_an_epoch(model: nn.Module) -> float:
    """Train for an epoch; seconds spent measuring over all of them."""

    class Timed(HeldInStopping):
        spent = 0.0

        def identify_loss(self, loader: Any) -> None:
            self.spent += processor_seconds(lambda: super(Timed, self).identify_loss(loader))

        def after_epoch(self, loader: Any) -> dict[str, float]:
            start, before = time.process_time(), self.spent
            values = super().after_epoch(loader)
            self.spent = before + time.process_time() - start
            return values

    data = [{"input_ids": one, "labels": one} for batch in texts(NUM_STEPS) for one in batch["input_ids"]]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH_SIZE,
            lr_scheduler_type="constant",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model, arguments, train_dataset=data)
        stopping = Timed(batches=NUM_BATCHES).attach(trainer)
        with redirect_stdout(io.StringIO()):
            total = processor_seconds(trainer.train)
        return stopping.spent / total


def plain_passes(model: nn.Module, batches: list[Batch]) -> None:
    """Go forward and backward over each batch, as a training loop does."""
    for batch in batches:
        model.zero_grad()
        model(**batch).loss.backward()


def trainable(model: nn.Module) -> int:
    """The number of coordinates of a gradient."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def row(models: dict[str, nn.Module], quantity: str, ratios: list[float]) -> dict[str, Any]:
    """Summarize repeats by their median and quartiles."""
    num_trainable = {name: trainable(model) for name, model in models.items()}
    return {"num_trainable": num_trainable, "quantity": quantity, **summarize(ratios)}


def line(row: dict[str, Any]) -> str:
    """A row of the printed table."""
    lower, upper = row["quartiles"]
    return f"{row['quantity']:<40} {row['median']:>7.4f} [{lower:.4f}, {upper:.4f}]  n = {row['num_repeats']}"


if __name__ == "__main__":
    main()
