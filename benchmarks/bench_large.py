"""The memory of one reading of a large language model, in units of one gradient.

Claim: with `memory="sketch"` a reading of a causal language model of Llama's kind with 1.0 billion parameters in
bfloat16, built from a configuration, takes less than 1.2 times the memory of one gradient beyond the model itself.
Full gradients of s batches would take s.

Setting: random tokens, s batches of 2 texts; what is measured does not depend on the tokens. Peak memory is that of the
process (VmHWM), reset before the reading; the model and its batches are already there. Gradient checkpointing is off:
with so few tokens activations are small.

Hardware class: a shared virtual machine, x86-64, 2 cores, 24 GiB, no GPU. The processor multiplies bfloat16 matrices
without hardware support, which is what takes the time.

Usage: `python benchmarks/bench_large.py [--billions 1.0] [--memory sketch] [--batches 2] [--length 8]`; not part of
`make bench`, since it takes several minutes. Linux only.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import heldin

RESULTS = Path(__file__).parent / "results" / "large.json"
BAR = 1.2
SIZES = {  # billions of parameters -> width, layers
    0.1: (768, 8),
    0.3: (1024, 20),
    0.5: (1536, 14),
    1.0: (2048, 18),
}
VOCABULARY = 32_000


def main() -> None:
    """Build the model, take one reading, print and write its peak memory."""
    parser = argparse.ArgumentParser(description="Peak memory of one reading of a large model.")
    parser.add_argument("--billions", type=float, default=1.0, choices=SIZES)
    parser.add_argument("--memory", default="sketch", choices=["full", "bf16", "sketch"])
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--length", type=int, default=8, help="tokens per text")
    parser.add_argument("--write", action="store_true", help="add the row to the results")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = language_model(options.billions)
    num = sum(parameter.numel() for parameter in model.parameters())
    gradient_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    tokens = torch.randint(VOCABULARY, (options.batches, 2, options.length))
    batches = [{"input_ids": one, "labels": one} for one in tokens]
    before = reset_peak()
    start = time.perf_counter()
    found = heldin.measure(model, None, batches, memory=options.memory)
    spent = time.perf_counter() - start
    ratio = (peak() - before) / gradient_bytes
    row: dict[str, Any] = {
        "num_parameters": num,
        "dtype": "bfloat16",
        "memory": options.memory,
        "num_batches": options.batches,
        "tokens_per_batch": 2 * options.length,
        "gradient_gib": round(gradient_bytes / 2**30, 3),
        "peak_extra_over_gradient": round(ratio, 3),
        "bar": BAR,
        "verdict": "ok" if ratio < BAR else "over",
        "seconds": round(spent, 1),
        "gradient_disparity": found["gradient_disparity"],
    }
    header = {"torch": torch.__version__, "transformers": transformers.__version__, "cpus": os.cpu_count()}
    print(", ".join(f"{name} {value}" for name, value in {**header, **row}.items()))
    if options.write:
        rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
        RESULTS.write_text(json.dumps({"header": header, "rows": [*rows, row]}, indent=1) + "\n")


def language_model(billions: float) -> torch.nn.Module:
    """A causal language model in bfloat16 with random weights. They are drawn layer by layer: nothing is held twice."""
    width, layers = SIZES[billions]
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=4 * width * 2 // 3 // 64 * 64,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        use_cache=False,
        dtype="bfloat16",
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)


def reset_peak() -> int:
    """Forget the peak memory of this process so far, and return the memory it has now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def peak() -> int:
    """The peak memory of this process in bytes."""
    return status("VmHWM")


def status(name: str) -> int:
    """A size in /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


if __name__ == "__main__":
    main()
