"""`python -m benchmarks.ablation`: S3Attention without each of its parts, and with other r, s1 and s2.

Writes `ablation.json`, `.md` and `.png` into `benchmarks/results/`, after each run; started again, it goes on.
"""

from benchmarks.lra import GPU, TASKS
from benchmarks.study import Study

PARTS = {
    "without Fourier convolution": "use_fourier",
    "without convolution stem": "use_stem",
    "without column attention": "use_columns",
    "without row attention": "use_rows",
}
SIZES = {"r": ("num_segments", (1, 16, 32)), "s1": ("num_rows", (32, 128)), "s2": ("num_columns", (1, 4, 16, 32))}
ROWS = {
    "r = s1 = s2 = 8": (),
    **{name: (f"model.encoder.options.{key}=false",) for name, key in PARTS.items()},
    **{
        f"{name} = {size}": (f"model.encoder.options.{key}={size}",)
        for name, (key, sizes) in SIZES.items()
        for size in sizes
    },
}
APPENDIX = """## Published (S3Attention paper, Tables 6 and 7), difference to r = s1 = s2 = 8

| | listops | text | retrieval | image |
| --- | ---: | ---: | ---: | ---: |
| without Fourier convolution | -0.47 | -4.04 | -13.98 | -5.64 |
| without convolution stem | -0.13 | -0.55 | -1.51 | -1.76 |
| without column attention | -1.16 | -8.00 | -9.16 | -10.63 |
| without row attention | -0.38 | -1.92 | -1.97 | -2.64 |
| r = 1 | -1.00 | -4.02 | -4.61 | -2.54 |
| r = 16 | +0.32 | +0.75 | -0.05 | +0.30 |
| r = 32 | -0.11 | 0.00 | -1.21 | -0.17 |
| s1 = 32 | +0.14 | +1.58 | +0.15 | +1.02 |
| s1 = 128 | -0.97 | -0.03 | -1.68 | -4.82 |
| s2 = 1 | -0.98 | -13.99 | -25.89 | -12.93 |
| s2 = 4 | -0.48 | -17.22 | -10.68 | -7.16 |
| s2 = 16 | -0.53 | +0.97 | +0.16 | +0.21 |
| s2 = 32 | -0.68 | -0.95 | -3.15 | -2.24 |
"""

STUDY = Study(
    name="ablation",
    title="What each part of S3Attention is worth",
    text="The recipes of `benchmarks.lra`, length-aware.",
    columns=TASKS,
    rows=ROWS,
    scales={"cpu": {}, "gpu": GPU},
    appendix=APPENDIX,
)

if __name__ == "__main__":
    STUDY.run()
