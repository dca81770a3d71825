"""Train three presets one after another and compare them in a table.

python examples/three_presets.py           # thirty epochs each
python examples/three_presets.py --quick   # one epoch each: a smoke test
"""

import sys

from distrain import launch, load_preset

PRESETS = ["single", "allreduce", "ddp"]
EPOCHS = 1 if "--quick" in sys.argv[1:] else 30

rows = []
for name in PRESETS:
    run = launch(load_preset(name, {"train.epochs": EPOCHS}), name=name)
    print(f"{name}: {run.id}", file=sys.stderr)
    rows.append(run.wait())

print("preset     ranks  steps  samples/s     top1     loss duration")
for name, row in zip(PRESETS, rows, strict=True):
    if row["status"] != "completed":
        print(f"{name:<10} {row['status']}: {row.get('error', {}).get('message', '')}")
        continue
    rate, scores = row["samples_per_s"], row["eval"]
    print(
        f"{name:<10} {row['world_size']:>5} {row['steps']:>6} {rate:>10,.0f} "
        f"{scores['top1']:>8.2%} {scores['loss']:>8.4f} {row['duration_s']:>6.1f} s"
    )
sys.exit(any(row["status"] != "completed" for row in rows))
